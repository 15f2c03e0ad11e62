//! Waiting for what happens elsewhere: never a fixed time, always a condition with a deadline.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

/// How long between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Looks until `look` succeeds, and returns what it found.
///
/// # Errors
/// When it has not by the deadline: says what was waited for and the last reason why not.
pub fn until<T, E: Display>(
    deadline: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<T, E>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(why) if start.elapsed() > deadline => {
                return Err(anyhow!("waited {deadline:?} for {what}: {why:#}"));
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// As [`until`], for tests: panics with the reason.
#[track_caller]
pub fn eventually<T, E: Display>(deadline: Duration, what: &str, look: impl FnMut() -> Result<T, E>) -> T {
    match until(deadline, what, look) {
        Ok(found) => found,
        Err(error) => panic!("{error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::until;

    #[test]
    fn the_last_reason_is_told() {
        let mut looks = 0;
        let error = until(Duration::from_millis(30), "a miracle", || {
            looks += 1;
            Err::<(), _>(format!("look {looks}"))
        });
        let message = error.expect_err("it never succeeds").to_string();
        assert!(looks > 1 && message.ends_with(&format!("for a miracle: look {looks}")), "{message}");
    }
}
