//! Placements of nodes: the names of devices, and the check that operands are on one device.

use gradiff_graph::{Arg, Placement, UOp};
use gradiff_runtime::{default_device, device_name, device_names};

use crate::Error;
use crate::error::invalid;

/// Returns the name of a device.
pub(crate) fn name_of(placement: &Placement) -> Result<&'static str, Error> {
    Ok(match placement {
        Placement::Default => default_device()?,
        Placement::Named(name) => device_name(name)?,
    })
}

/// Refuses nodes on different devices as operands of an op.
pub(crate) fn check_devices(
    name: &str,
    operands: impl IntoIterator<Item = UOp>,
) -> Result<(), Error> {
    let mut first: Option<Placement> = None;
    for operand in operands {
        match (&first, operand.device()) {
            (None, device) => first = device.cloned(),
            // The default device is not asked for, and perhaps opened, if all are on it.
            (Some(first), Some(second)) if first != second => {
                let (first, second) = (name_of(first)?, name_of(second)?);
                if first != second {
                    return invalid(format!(
                        "{name} of tensors on {first} and {second}: copy one to the device of the \
                         other, as with `.to({first:?})`"
                    ));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that the names of devices in a graph are canonical names.
pub(crate) fn check_names(order: &[&UOp]) -> Result<(), Error> {
    for node in order {
        let placement = match node.arg() {
            Arg::Device(placement) => Some(placement),
            Arg::Buffer(buffer) => buffer.placement(),
            _ => None,
        };
        if let Some(Placement::Named(name)) = placement
            && !device_names().contains(&&**name)
        {
            let known = device_names().join(", ");
            return invalid(format!(
                "a tensor of {node:?}: there is no device {name}; devices are {known}"
            ));
        }
    }
    Ok(())
}
