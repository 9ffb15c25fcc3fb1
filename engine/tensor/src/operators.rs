//! Operators on tensors, references to them, and scalars on either side. Each panics with the
//! message of its fallible method where that returns an error, at the line of its caller.
//!
//! | operator | method |
//! |---|---|
//! | `+ - *` | [`add`](Tensor::add), [`sub`](Tensor::sub), [`mul`](Tensor::mul) |
//! | `/` | [`div`](Tensor::div): of integers, a float |
//! | `%` | [`floormod`](Tensor::floormod): the sign of the divisor |
//! | `& \| ^` | [`and`](Tensor::and), [`or`](Tensor::or), [`xor`](Tensor::xor) |
//! | `<< >>` | [`shl`](Tensor::shl), [`shr`](Tensor::shr) |
//! | `- !` | [`neg`](Tensor::neg), [`not`](Tensor::not) |
//! | `+= -= *= ...` | [`assign`](Tensor::assign) of the result, which may not require a gradient |
//!
//! ```
//! # use gradiff_tensor::Tensor;
//! let x = Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0])?;
//! let y = (2.0 * &x - 1.0) / (&x + &x);
//! assert_eq!(y.to_text()?, "[0.5, 0.75, 0.8333333]");
//! # Ok::<(), gradiff_tensor::Error>(())
//! ```

use std::ops::{
    Add, AddAssign, BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, BitXorAssign, Div, DivAssign,
    Mul, MulAssign, Neg, Not, Rem, RemAssign, Shl, ShlAssign, Shr, ShrAssign, Sub, SubAssign,
};

use gradiff_graph::DType;

use crate::{Error, Operand, Tensor};

/// Returns the tensor.
///
/// # Panics
/// With the message of the error.
#[track_caller]
fn expected(result: Result<Tensor, Error>) -> Tensor {
    match result {
        Ok(tensor) => tensor,
        Err(error) => panic!("{error}"),
    }
}

/// The dtype that a scalar takes before an operator with a tensor.
fn same(dtype: DType) -> DType {
    dtype
}

/// The dtype of a scalar that is divided by a tensor: that in which [`Tensor::div`] divides.
fn divided(dtype: DType) -> DType {
    if dtype.is_float() { dtype } else { DType::F32 }
}

/// Implements a binary operator for a tensor or reference on the left.
macro_rules! operators {
    ($($trait:ident $operator:ident $method:ident $dtype:ident;)*) => {$(
        impl<T: Into<Operand>> $trait<T> for &Tensor {
            type Output = Tensor;

            #[track_caller]
            fn $operator(self, other: T) -> Tensor {
                expected(Tensor::$method(self, other))
            }
        }

        impl<T: Into<Operand>> $trait<T> for Tensor {
            type Output = Tensor;

            #[track_caller]
            fn $operator(self, other: T) -> Tensor {
                expected(Tensor::$method(&self, other))
            }
        }

        scalars_first! { $trait $operator $method $dtype: i64 f64 }
    )*};
}

/// Implements a binary operator for a scalar on the left: of one integer and one float type, so
/// that the type of a literal is clear. `$dtype` gives the scalar's dtype by that of the tensor.
macro_rules! scalars_first {
    ($trait:ident $operator:ident $method:ident $dtype:ident: $($scalar:ty)*) => {$(
        impl $trait<&Tensor> for $scalar {
            type Output = Tensor;

            #[track_caller]
            fn $operator(self, other: &Tensor) -> Tensor {
                let scalar = Tensor::scalar($dtype(other.dtype()), self);
                expected(scalar.and_then(|scalar| Tensor::$method(&scalar, other)))
            }
        }

        impl $trait<Tensor> for $scalar {
            type Output = Tensor;

            #[track_caller]
            fn $operator(self, other: Tensor) -> Tensor {
                $trait::$operator(self, &other)
            }
        }
    )*};
}

operators! {
    Add add add same;
    Sub sub sub same;
    Mul mul mul same;
    Div div div divided;
    Rem rem floormod same;
    BitAnd bitand and same;
    BitOr bitor or same;
    BitXor bitxor xor same;
    Shl shl shl same;
    Shr shr shr same;
}

/// Implements an assignment with an operation: the tensor and its clones become the result.
macro_rules! assignments {
    ($($trait:ident $operator:ident $method:ident $sign:literal;)*) => {$(
        impl<T: Into<Operand>> $trait<T> for Tensor {
            #[track_caller]
            fn $operator(&mut self, other: T) {
                const ADVICE: &str = concat!(
                    "write x = x ", $sign, " y to keep the gradient, or x.assign(x.detach() ",
                    $sign, " y.detach())? to change x, as a parameter, without it"
                );
                let value = expected(Tensor::$method(self, other));
                expected(self.assign_or(concat!($sign, "="), value.into(), ADVICE));
            }
        }
    )*};
}

assignments! {
    AddAssign add_assign add "+";
    SubAssign sub_assign sub "-";
    MulAssign mul_assign mul "*";
    DivAssign div_assign div "/";
    RemAssign rem_assign floormod "%";
    BitAndAssign bitand_assign and "&";
    BitOrAssign bitor_assign or "|";
    BitXorAssign bitxor_assign xor "^";
    ShlAssign shl_assign shl "<<";
    ShrAssign shr_assign shr ">>";
}

impl Neg for &Tensor {
    type Output = Tensor;

    #[track_caller]
    fn neg(self) -> Tensor {
        expected(Tensor::neg(self))
    }
}

impl Neg for Tensor {
    type Output = Tensor;

    #[track_caller]
    fn neg(self) -> Tensor {
        -&self
    }
}

impl Not for &Tensor {
    type Output = Tensor;

    #[track_caller]
    fn not(self) -> Tensor {
        expected(Tensor::not(self))
    }
}

impl Not for Tensor {
    type Output = Tensor;

    #[track_caller]
    fn not(self) -> Tensor {
        !&self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, Location, catch_unwind};
    use std::sync::Once;

    fn text(tensor: &Tensor) -> String {
        let there = tensor.to("interp").expect("always there");
        there.to_text().expect("it computes")
    }

    #[test]
    fn operators_are_their_methods() {
        let x = Tensor::from_slice(&[2], &[7, -7]).expect("two elements");
        let y = Tensor::from_slice(&[2], &[2, 3]).expect("two elements");
        for (found, wanted) in [
            (&x + &y, "[9, -4]"),
            (&x - 1, "[6, -8]"),
            (1 - &x, "[-6, 8]"),
            (&x * y.clone(), "[14, -21]"),
            (&x % &y, "[1, 2]"),
            (&x & 3, "[3, 1]"),
            (&x | 8, "[15, -7]"),
            (&x ^ &x, "[0, 0]"),
            (1 << &y, "[4, 8]"),
            (x.clone() >> 1, "[3, -4]"),
            (-&x, "[-7, 7]"),
            (!&x, "[-8, 6]"),
            (-(x.clone() + 1), "[-8, 6]"),
        ] {
            assert_eq!(text(&found), wanted);
        }
        assert_eq!(text(&(&x / 2)), "[3.5, -3.5]");
        assert_eq!(text(&(10.5 / &x)), "[1.5, -1.5]");
        let bytes = Tensor::from_slice(&[2], &[8u8, 100]).expect("two elements");
        assert_eq!(text(&(1000 / &bytes)), "[125.0, 10.0]");
        let mask = Tensor::from_slice(&[1], &[true]).expect("an element");
        assert_eq!(text(&(2 / &mask)), "[2.0]");
        let double = x.cast(DType::F64).expect("a cast");
        assert_eq!((1 / &double).dtype(), DType::F64);
        let shifted = 10i64 - &x.cast(DType::U8).expect("a cast");
        assert_eq!(shifted.dtype(), DType::U8);
    }

    #[test]
    #[should_panic(expected = "add of shapes [2] and [3]")]
    fn an_operator_panics_with_the_message_of_its_method() {
        let [x, y] = [2, 3].map(|size| Tensor::zeros(DType::F32, &[size]));
        let _ = x.expect("zeros") + y.expect("zeros");
    }

    thread_local! {
        /// The line of the last panic of this thread.
        static LINE: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// Returns the line of this file at which a function panics.
    fn panic_line(function: impl FnOnce()) -> Option<u32> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                let location = info.location().filter(|location| location.file() == file!());
                LINE.set(location.map(Location::line));
                previous(info);
            }));
        });
        LINE.set(None);
        catch_unwind(AssertUnwindSafe(function)).expect_err("it panics");
        LINE.get()
    }

    #[test]
    fn operators_panic_at_the_line_of_their_caller() -> Result<(), Error> {
        let [x, y] = [2, 3].map(|size| Tensor::zeros(DType::F32, &[size]));
        let (x, y, mask) = (x?, y?, Tensor::ones(DType::Bool, &[2])?);
        let before = line!();
        let operations: [fn(&Tensor, &Tensor, &Tensor); 32] = [
            |x, y, _| drop(x + y),
            |x, y, _| drop(x - y),
            |x, y, _| drop(x * y),
            |x, y, _| drop(x / y),
            |x, y, _| drop(x % y),
            |x, y, _| drop(x & y),
            |x, y, _| drop(x | y),
            |x, y, _| drop(x ^ y),
            |x, y, _| drop(x << y),
            |x, y, _| drop(x >> y),
            |x, y, _| drop(x.clone() + y),
            |x, y, _| drop(x.clone() << y),
            |_, _, mask| drop(1 + mask),
            |_, _, mask| drop(1 - mask),
            |_, _, mask| drop(1.5 * mask),
            |_, _, mask| drop(1 % mask),
            |_, _, mask| drop(1 & mask),
            |_, _, mask| drop(1 << mask),
            |_, _, mask| drop(1 + mask.clone()),
            |_, _, mask| drop(-mask),
            |_, _, mask| drop(-mask.clone()),
            |x, _, _| drop(!x),
            |x, _, _| drop(!x.clone()),
            |x, y, _| x.clone().add_assign(y),
            |x, y, _| x.clone().sub_assign(y),
            |x, y, _| x.clone().mul_assign(y),
            |x, y, _| x.clone().div_assign(y),
            |x, y, _| x.clone().bitand_assign(y),
            |x, y, _| x.clone().bitor_assign(y),
            |x, y, _| x.clone().bitxor_assign(y),
            |x, y, _| x.clone().shl_assign(y),
            |x, y, _| x.clone().shr_assign(y),
        ];
        for (number, operation) in operations.iter().enumerate() {
            let line = before + 2 + number as u32;
            assert_eq!(panic_line(|| operation(&x, &y, &mask)), Some(line));
        }
        Ok(())
    }

    #[test]
    fn assignments_of_what_requires_a_gradient_say_what_to_write() -> Result<(), Error> {
        let message = |assign: &dyn Fn()| {
            let payload = catch_unwind(AssertUnwindSafe(assign)).expect_err("it panics");
            payload.downcast_ref::<String>().expect("a message").clone()
        };
        let w = Tensor::from_slice(&[1], &[3f32])?.to("interp")?.requires_grad_(true)?;
        let loss = Tensor::zeros(DType::F32, &[1])?.to("interp")?;
        let found = message(&|| {
            let mut loss = loss.clone();
            loss += w.square().expect("a product");
        });
        let wanted = "+= of Tensor(f32[1]): it depends on a tensor that requires a gradient, \
                      which an assignment would cut: write x = x + y to keep the gradient, or \
                      x.assign(x.detach() + y.detach())? to change x, as a parameter, without it";
        assert_eq!(found, wanted);
        let found = message(&|| {
            let mut w = w.clone();
            w *= 2;
        });
        assert!(found.contains("x.assign(x.detach() * y.detach())?"), "{found}");
        let found = message(&|| {
            let mut loss = loss.clone();
            loss <<= 1;
        });
        assert!(found.starts_with("shl of f32"), "{found}");
        // The advice: a new value, and a parameter that is changed.
        let loss = loss + w.square()?;
        loss.sum(0)?.backward()?;
        assert_eq!(w.grad().expect("it has a gradient").to_text()?, "[6.0]");
        w.assign(w.detach() * 2)?;
        assert_eq!((w.to_text()?, w.requires_grad()), ("[6.0]".to_string(), Some(true)));
        Ok(())
    }
}
