//! Process trees: the processor time of a process and its descendants, how to end them all, and
//! whether another process ended one.
//!
//! Wall time says little about a program on a loaded machine; processor time does not depend on the
//! load. It is read from `/proc`. Where there is none, it is `None`, and wall time is used instead.

use std::collections::HashMap;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// Unit of times in `/proc`: Linux gives them in hundredths of a second on every machine.
const TICK: Duration = Duration::from_millis(10);

/// Fields of `/proc/PID/stat`.
struct Stat {
    parent: u32,
    /// Ticks of the process and of the children that it waited for, in user and system mode.
    ticks: u64,
}

/// Processor time of a process and of the children that it waited for.
pub(crate) fn of_process(pid: u32) -> Option<Duration> {
    Some(TICK * u32::try_from(stat(pid)?.ticks).ok()?)
}

/// Processor time that a process and its descendants have taken so far.
pub(crate) fn of_tree(root: u32) -> Option<Duration> {
    let entries = std::fs::read_dir("/proc").ok()?;
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let stats: HashMap<u32, Stat> = numbers.filter_map(|pid| Some((pid, stat(pid)?))).collect();
    stats.get(&root)?;
    let is_below = |mut pid: u32| {
        // No tree is deeper than the number of processes: reused numbers cannot make this loop.
        for _ in 0..stats.len() {
            match stats.get(&pid) {
                Some(_) if pid == root => return true,
                Some(stat) => pid = stat.parent,
                None => return false,
            }
        }
        false
    };
    let below = stats.iter().filter(|(pid, _)| is_below(**pid));
    let ticks: u64 = below.map(|(_, stat)| stat.ticks).sum();
    Some(TICK * u32::try_from(ticks).ok()?)
}

fn stat(pid: u32) -> Option<Stat> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses fields 4 and 14 to 17. The name, field 2, is in parentheses and may hold anything.
fn parse(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let ticks = number(14)? + number(15)? + number(16)? + number(17)?;
    Some(Stat { parent: u32::try_from(number(4)?).ok()?, ticks })
}

/// Number of processes that the system has killed because memory ran out; `None` where unknown.
pub(crate) fn memory_kills() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Returns whether another process or a limit ended this one: by SIGHUP, SIGINT, SIGQUIT, SIGTERM,
/// SIGXCPU or SIGXFSZ, or by SIGKILL if the system has killed no process for lack of memory since
/// it counted `memory_kills`.
#[cfg(unix)]
pub(crate) fn is_from_outside(status: ExitStatus, memory_kills: Option<u64>) -> bool {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(1 | 2 | 3 | 15 | 24 | 25) => true,
        Some(9) => memory_kills.is_some() && memory_kills == self::memory_kills(),
        _ => false,
    }
}

#[cfg(not(unix))]
pub(crate) fn is_from_outside(_: ExitStatus, _: Option<u64>) -> bool {
    false
}

/// Makes the command the leader of a process group, so that `end_group` ends it with all processes
/// that it starts.
pub(crate) fn lead(command: &mut Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    #[cfg(not(unix))]
    let _ = command;
}

/// Returns whether a child has ended, without reaping it: its number is not reused.
pub(crate) fn has_ended(child: &mut Child) -> bool {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        pid.is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_))))
    }
    #[cfg(not(unix))]
    matches!(child.try_wait(), Ok(Some(_)))
}

/// Kills the group that a process leads. The process must not have been reaped: until then its
/// number is not reused.
pub(crate) fn end_group(leader: u32) {
    #[cfg(unix)]
    if let Some(group) = i32::try_from(leader).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    #[cfg(not(unix))]
    let _ = leader;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_behind_any_name() {
        let text = "7 (a) b) (c) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 5 6 7";
        let stat = parse(text).expect("a line of /proc");
        assert_eq!((stat.parent, stat.ticks), (3, 100));
        assert!(parse("7 (a) S 3").is_none() && parse("").is_none());
    }

    /// The limits of processor time and of file sizes were findings.
    #[cfg(unix)]
    #[test]
    fn signals_of_users_and_limits_are_from_outside() {
        use std::os::unix::process::ExitStatusExt;
        let is_outside = |signal: &i32| is_from_outside(ExitStatus::from_raw(*signal), None);
        let found: Vec<i32> = (1..32).filter(is_outside).collect();
        assert_eq!(found, [1, 2, 3, 15, 24, 25]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn tree_counts_processor_time_of_children_and_no_sleep() {
        let start = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            lead(&mut command);
            command.spawn().expect("a shell")
        };
        let mut idle = start("sleep 60 & wait");
        let mut busy = start("(while :; do :; done) & wait");
        let (idle_pid, busy_pid) = (idle.id(), busy.id());
        let limit = Duration::from_millis(300);
        let mut taken = Duration::ZERO;
        for _ in 0..600 {
            taken = of_tree(busy_pid).expect("it runs");
            if taken >= limit {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let idled = of_tree(idle_pid).expect("it runs");
        for (child, pid) in [(&mut idle, idle_pid), (&mut busy, busy_pid)] {
            end_group(pid);
            let _ = child.wait();
            assert_eq!(of_tree(pid), None);
        }
        assert!(taken >= limit && idled < limit, "{taken:?} {idled:?}");
    }
}
