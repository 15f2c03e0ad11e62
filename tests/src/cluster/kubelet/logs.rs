//! What containers have printed, with the time of each line.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use k8s_openapi::jiff::Timestamp;

/// Lines that are kept for each container. The mirror tests look for one in 500 of the last few seconds.
const MOST_LINES: usize = 100_000;

/// The logs of all containers that have started.
#[derive(Clone, Debug, Default)]
pub(super) struct Logs {
    by_container: Rc<RefCell<HashMap<Key, Log>>>,
}

/// Namespace, pod and container.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Key {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) container: String,
}

/// The lines of one container, over all its runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    lines: Rc<RefCell<VecDeque<(Timestamp, String)>>>,
}

impl Logs {
    /// A new log in the place of one that another pod of this name may have had.
    pub(super) fn open(&self, key: Key) -> Log {
        let log = Log::default();
        self.by_container.borrow_mut().insert(key, log.clone());
        log
    }

    pub(super) fn of(&self, key: &Key) -> Option<Log> {
        self.by_container.borrow().get(key).cloned()
    }

    pub(super) fn forget(&self, key: &Key) {
        self.by_container.borrow_mut().remove(key);
    }
}

impl Log {
    pub(super) fn push(&self, line: String) {
        let mut lines = self.lines.borrow_mut();
        if lines.len() == MOST_LINES {
            lines.pop_front();
        }
        lines.push_back((Timestamp::now(), line));
    }

    /// The lines printed at or after `since`, the last `tail` of them; all, where not given.
    pub(super) fn text(&self, since: Option<Timestamp>, tail: Option<usize>) -> String {
        let lines = self.lines.borrow();
        let first = since.map_or(0, |since| lines.partition_point(|(at, _)| *at < since));
        let first = tail.map_or(first, |tail| first.max(lines.len().saturating_sub(tail)));
        lines.range(first..).flat_map(|(_, line)| [line, "\n"]).collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::{Log, MOST_LINES};

    #[test]
    fn a_log_is_cut_by_time_and_by_number() {
        let log = Log::default();
        log.push("first".to_owned());
        let between = Timestamp::now();
        log.push("second".to_owned());
        log.push("third".to_owned());
        assert_eq!(log.text(None, None), "first\nsecond\nthird\n");
        assert_eq!(log.text(Some(between), None), "second\nthird\n");
        assert_eq!(log.text(Some(between), Some(1)), "third\n");
        assert_eq!(log.text(None, Some(9)), "first\nsecond\nthird\n");
    }

    #[test]
    fn the_oldest_lines_go_first() {
        let log = Log::default();
        (0..=MOST_LINES).for_each(|number| log.push(number.to_string()));
        assert!(log.text(None, None).starts_with("1\n"));
    }
}
