//! Digests of bytes, by a library of hash functions.

use gradiff_corpus::DType;
use sha3::{Digest, Sha3_224, Sha3_256};
use shake::{ExtendableOutput, Shake128, Update, XofReader};

use super::Call;
use crate::cell::{Cell, Reason};
use crate::infer::{Check, limit};
use crate::value::Value;

/// Bytes of a message at most.
const MESSAGE_BYTES: usize = 65_536;
/// Bytes of a digest of SHAKE128.
const SHAKE_BYTES: usize = 16;

/// The digest of a message.
fn digest(function: &str, message: &[u8]) -> Vec<u8> {
    match function {
        "sha3_224" => Sha3_224::digest(message).to_vec(),
        "sha3_256" => Sha3_256::digest(message).to_vec(),
        _ => {
            let mut shake = Shake128::default();
            shake.update(message);
            let mut bytes = vec![0; SHAKE_BYTES];
            shake.finalize_xof().read(&mut bytes);
            bytes
        }
    }
}

/// The bytes of elements, little endian.
fn bytes(dtype: DType, elements: &[Cell]) -> Result<Vec<u8>, Reason> {
    let mut found = Vec::new();
    for cell in elements {
        let bits = cell.bits(dtype).ok_or(match cell {
            Cell::Unspecified(reason) => *reason,
            _ => Reason::InexactBits,
        })?;
        found.extend(&bits.to_le_bytes()[..dtype.size_bytes()]);
    }
    Ok(found)
}

/// The digests of the elements along the last axis.
pub(super) fn keccak(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let function = call.args.word(0);
    let [outer @ .., length] = &x.shape[..] else { return Err("a scalar".to_string()) };
    if MESSAGE_BYTES < length * x.dtype.size_bytes() {
        return Err(format!("a message of {length} elements"));
    }
    let size = digest(function, &[]).len();
    let shape = limit([outer, &[size]].concat())?;
    let mut cells = Vec::new();
    for number in 0..outer.iter().product() {
        match bytes(x.dtype, &x.cells[number * length..][..*length]) {
            Ok(message) => {
                let digest = digest(function, &message);
                cells.extend(digest.into_iter().map(|byte| Cell::Int(byte.into())));
            }
            Err(reason) => cells.extend(vec![Cell::Unspecified(reason); size]),
        }
    }
    Ok(Value::new(DType::U8, shape, cells))
}
