//! Tensors that two threads use at once: both read or compute what is not computed yet, or one
//! reads a tensor while the other assigns to it.

use std::sync::Barrier;
use std::thread;

use gradiff::{Error, Tensor, realize};

use super::Draw;

/// Draws a computation of integers, shares it, and compares what both threads read with a loop.
pub(super) fn threads(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let shape = [1 + draw.below(12) as i64];
    let device = draw.pick(&["interp", "interp", "jit"]);
    let mut data = || -> Result<(Tensor, Vec<i32>), Error> {
        let numbers: Vec<i32> = (0..shape[0]).map(|_| draw.below(200) as i32 - 100).collect();
        Ok((Tensor::from_slice(&shape, &numbers)?.to(device)?, numbers))
    };
    let (x, numbers) = data().map_err(problem)?;
    let (new, assigned) = data().map_err(problem)?;
    let factor = draw.below(9) as i32 - 4;
    let shared = x.mul(factor).and_then(|y| y.add(7)).map_err(problem)?;
    let square = shared.mul(&shared).map_err(problem)?;
    let wanted: Vec<i32> = numbers.iter().map(|x| x * factor + 7).collect();
    let squares: Vec<i32> = wanted.iter().map(|x| x * x).collect();
    let read = |tensor: &Tensor| tensor.to_vec::<i32>();
    let kind = draw.below(4);
    let label = |problem: String| format!("threads, kind {kind} on {device}: {problem}");
    let found = match kind {
        0 => at_once(|| read(&shared), || read(&shared)),
        1 => at_once(|| read(&shared), || read(&square)),
        2 => at_once(
            || realize(&[&shared, &square]).and_then(|()| read(&shared)),
            || realize(&[&square]).and_then(|()| read(&square)),
        ),
        _ => at_once(|| read(&shared), || shared.assign(&new).map(|_| Vec::new())),
    };
    let [first, second] = found.map_err(label)?;
    let is_right = match kind {
        0 => first == wanted && second == wanted,
        1 | 2 => first == wanted && second == squares,
        // Either before the assignment or after it.
        _ => first == wanted || first == assigned,
    };
    if !is_right {
        return Err(label(format!("{first:?} and {second:?} of {wanted:?}, {assigned:?}")));
    }
    let last = if kind == 3 { &assigned } else { &wanted };
    for (tensor, wanted) in [(&shared, last), (&square, &squares)] {
        let found = read(tensor).map_err(problem)?;
        if found != *wanted {
            return Err(label(format!("afterwards {found:?}, not {wanted:?}")));
        }
    }
    Ok(())
}

/// Runs both at the same time, in two threads.
fn at_once<T: Send>(
    first: impl FnOnce() -> Result<T, Error> + Send,
    second: impl FnOnce() -> Result<T, Error>,
) -> Result<[T; 2], String> {
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        let barrier = &barrier;
        let spawned = scope.spawn(move || caught(barrier, first));
        let second = caught(barrier, second);
        let first = spawned.join().map_err(|_| "a thread ends by a panic".to_string())?;
        Ok([first?, second?])
    })
}

/// Waits for the other thread, and runs the work.
fn caught<T>(barrier: &Barrier, work: impl FnOnce() -> Result<T, Error>) -> Result<T, String> {
    barrier.wait();
    crate::catch(work)?.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_read_the_same() {
        for seed in 0..100 {
            threads(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }
}
