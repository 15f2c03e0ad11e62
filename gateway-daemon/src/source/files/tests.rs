//! Loading and watching: what a change of files does to what is served.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Load, Loader, watch};
use crate::{api::Key, source::Loaded};

fn namespace(name: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n")
}

fn names(loaded: &Loaded) -> Vec<String> {
    loaded.resources.namespaces.keys().map(Key::to_string).collect()
}

fn codes(load: &Load) -> Vec<&'static str> {
    load.loaded.faults.iter().map(|fault| fault.code).collect()
}

struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn loader(&self) -> Loader {
        Loader::new(vec![self.0.path().to_owned()])
    }
}

#[test]
fn directories_are_read_through_and_other_files_left_alone() {
    let directory = Directory::new();
    directory.write("a.yaml", &namespace("a"));
    directory.write("deep/er/b.yml", &namespace("b"));
    directory.write("c.json", r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "c"}}"#);
    for other in ["README.md", ".hidden.yaml", "#edited.yaml#", "a.yaml~", ".a.yaml.swp", ".git/x.yaml"] {
        directory.write(other, &namespace("x"));
    }
    let load = directory.loader().load();
    assert_eq!(names(&load.loaded), ["a", "b", "c"]);
    assert_eq!(load.loaded.faults, []);
}

#[test]
fn nothing_has_changed_when_contents_have_not() {
    let directory = Directory::new();
    directory.write("a.yaml", &namespace("a"));
    let mut loader = directory.loader();
    assert!(loader.load().changed);
    directory.write("a.yaml", &namespace("a"));
    assert!(!loader.load().changed);
    directory.write("a.yaml", &namespace("b"));
    let load = loader.load();
    assert!(load.changed);
    assert_eq!(names(&load.loaded), ["b"]);
}

#[test]
fn a_file_that_goes_bad_keeps_what_it_had_and_others_change() {
    let directory = Directory::new();
    directory.write("a.yaml", &namespace("a"));
    directory.write("b.yaml", &namespace("b"));
    let mut loader = directory.loader();
    loader.load();
    for bad in ["apiVersion: v1\nkind: Namespace\nmetadata: {nam: a}\n", "a: [\n", "a: 1\na: 2\n"] {
        directory.write("a.yaml", bad);
        directory.write("b.yaml", &namespace(&format!("b{}", bad.len())));
        let load = loader.load();
        assert_eq!(names(&load.loaded), ["a".to_owned(), format!("b{}", bad.len())]);
        assert!(!load.loaded.faults.is_empty());
    }
    directory.write("a.yaml", &namespace("a2"));
    let load = loader.load();
    assert!(names(&load.loaded).contains(&"a2".to_owned()));
    assert_eq!(load.loaded.faults, []);
}

#[test]
fn a_file_that_was_never_good_gives_its_good_documents() {
    let directory = Directory::new();
    let bad = format!("{}---\nkind: Namespace\n", namespace("a"));
    directory.write("a.yaml", &bad);
    directory.write("b.yaml", &namespace("b"));
    let mut loader = directory.loader();
    let load = loader.load();
    assert_eq!(names(&load.loaded), ["a", "b"]);
    assert_eq!(codes(&load), ["missing-field"]);
    // Where the text is broken, its documents are not known.
    directory.write("a.yaml", &format!("{}---\na: [\n", namespace("a")));
    assert_eq!(names(&loader.load().loaded), ["b"]);
}

#[test]
fn a_deleted_file_takes_its_objects_with_it() {
    let directory = Directory::new();
    directory.write("a.yaml", &namespace("a"));
    directory.write("b.yaml", &namespace("b"));
    let mut loader = directory.loader();
    loader.load();
    fs::remove_file(directory.path("a.yaml")).unwrap();
    let load = loader.load();
    assert_eq!((names(&load.loaded), load.changed), (vec!["b".to_owned()], true));
}

#[test]
fn of_two_definitions_the_one_that_was_there_first_stays() {
    let directory = Directory::new();
    directory.write("b.yaml", &namespace("x"));
    let mut loader = directory.loader();
    loader.load();
    directory.write("a.yaml", &format!("{}---\n{}", namespace("y"), namespace("x")));
    let load = loader.load();
    let (a, b) = (directory.path("a.yaml"), directory.path("b.yaml"));
    assert_eq!(
        load.loaded.faults[0].to_string(),
        format!(
            "{}:9:9: duplicate-object: Namespace x is already defined at {}:4:9: remove one of them",
            a.display(),
            b.display()
        )
    );
    let owner = load.loaded.resources.namespaces[&Key::new("", "x")].origin.clone().unwrap();
    assert_eq!(*owner.file, *b.display().to_string());
}

#[test]
fn a_path_that_does_not_exist_is_a_fault() {
    let directory = Directory::new();
    let load = Loader::new(vec![directory.path("nowhere")]).load();
    assert_eq!(codes(&load), ["path-not-found"]);
}

#[test]
fn a_pipe_is_a_fault_and_nobody_waits_for_it() {
    let directory = Directory::new();
    let pipe = directory.path("pipe.yaml");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert_eq!(codes(&Loader::new(vec![pipe]).load()), ["path-unreadable"]);
    assert_eq!(codes(&directory.loader().load()), Vec::<&str>::new());
}

#[test]
fn a_file_with_two_names_is_read_once() {
    let directory = Directory::new();
    directory.write("..data/a.yaml", &namespace("a"));
    symlink("..data/a.yaml", directory.path("a.yaml")).unwrap();
    symlink("a.yaml", directory.path("b.yaml")).unwrap();
    symlink(".", directory.path("circle")).unwrap();
    let load = directory.loader().load();
    assert_eq!(names(&load.loaded), ["a"]);
    assert_eq!(load.loaded.faults, []);
}

/// Changes something, then waits until what is published has these namespaces.
async fn shows(watch: &super::Watch, expected: &[&str], change: impl FnOnce()) {
    let mut loaded = watch.loaded();
    change();
    let wait = loaded.wait_for(|loaded| names(loaded) == expected);
    let found = tokio::time::timeout(Duration::from_secs(10), wait).await;
    assert!(
        found.is_ok_and(|found| found.is_ok()),
        "expected {expected:?}, have {:?}",
        names(&watch.loaded().borrow())
    );
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

#[tokio::test]
async fn changes_are_noticed_however_they_are_made() {
    let directory = Directory::new();
    directory.write("a.yaml", &namespace("a"));
    let watch = watch(Loader::new(vec![directory.0.path().to_owned()])).unwrap();
    assert_eq!(names(&watch.loaded().borrow()), ["a"]);
    shows(&watch, &["b"], || directory.write("a.yaml", &namespace("b"))).await;
    shows(&watch, &["c"], || replace(&directory.path("a.yaml"), &namespace("c"))).await;
    shows(&watch, &["c", "d"], || directory.write("new/d.yaml", &namespace("d"))).await;
    shows(&watch, &["c", "e"], || directory.write("new/d.yaml", &namespace("e"))).await;
    shows(&watch, &["c"], || fs::remove_dir_all(directory.path("new")).unwrap()).await;
    shows(&watch, &["c", "f"], || directory.write("new/d.yaml", &namespace("f"))).await;
    shows(&watch, &["f"], || fs::remove_file(directory.path("a.yaml")).unwrap()).await;
}

#[tokio::test]
async fn a_mounted_config_map_is_followed_when_its_links_are_swapped() {
    let directory = Directory::new();
    directory.write("..1/a.yaml", &namespace("a"));
    symlink("..1", directory.path("..data")).unwrap();
    symlink("..data/a.yaml", directory.path("a.yaml")).unwrap();
    // A single file of the mount, too.
    let watch = watch(Loader::new(vec![directory.path("a.yaml")])).unwrap();
    assert_eq!(names(&watch.loaded().borrow()), ["a"]);
    for (swap, name) in [("..2", "b"), ("..3", "c")] {
        shows(&watch, &[name], || {
            directory.write(&format!("{swap}/a.yaml"), &namespace(name));
            symlink(swap, directory.path("..data_tmp")).unwrap();
            fs::rename(directory.path("..data_tmp"), directory.path("..data")).unwrap();
        })
        .await;
    }
}

#[tokio::test]
async fn a_path_that_appears_later_is_read_then() {
    let directory = Directory::new();
    let watch = watch(Loader::new(vec![directory.path("etc/gateway")])).unwrap();
    shows(&watch, &["a"], || directory.write("etc/gateway/a.yaml", &namespace("a"))).await;
}

#[tokio::test]
async fn a_reload_publishes_without_a_change() {
    let directory = Directory::new();
    let watch = watch(Loader::new(vec![directory.0.path().to_owned()])).unwrap();
    let mut loaded = watch.loaded();
    loaded.mark_unchanged();
    watch.reload();
    tokio::time::timeout(Duration::from_secs(10), loaded.changed()).await.unwrap().unwrap();
}

#[test]
fn a_named_path_that_is_away_for_a_moment_takes_nothing_with_it() {
    let directory = Directory::new();
    directory.write("etc/a.yaml", &namespace("a"));
    let mut loader = Loader::new(vec![directory.path("etc")]);
    assert_eq!(names(&loader.load().loaded), ["a"]);
    fs::rename(directory.path("etc"), directory.path("away")).unwrap();
    let load = loader.load();
    assert_eq!((names(&load.loaded), codes(&load)), (vec!["a".to_owned()], vec!["path-not-found"]));
    fs::rename(directory.path("away"), directory.path("etc")).unwrap();
    directory.write("etc/a.yaml", &namespace("b"));
    let load = loader.load();
    assert_eq!((names(&load.loaded), codes(&load)), (vec!["b".to_owned()], vec![]));
}

#[test]
fn what_was_good_is_remembered_over_a_restart() {
    let directory = Directory::new();
    let start = || Loader::new(vec![directory.path("etc")]).remembering(directory.path("state/last-good"));
    directory.write("etc/a.yaml", &namespace("a"));
    directory.write("etc/b.yaml", &namespace("b"));
    assert_eq!(names(&start().load().loaded), ["a", "b"]);

    directory.write("etc/a.yaml", "kind: [");
    assert_eq!(names(&start().load().loaded), ["a", "b"], "a bad file has what it had before the restart");
    fs::rename(directory.path("etc"), directory.path("away")).unwrap();
    assert_eq!(names(&start().load().loaded), ["a", "b"], "so has one that is away");
    fs::rename(directory.path("away"), directory.path("etc")).unwrap();

    fs::remove_file(directory.path("etc/a.yaml")).unwrap();
    assert_eq!(names(&start().load().loaded), ["b"]);
    directory.write("etc/a.yaml", "kind: [");
    assert_eq!(names(&start().load().loaded), ["b"], "what was taken away on purpose is forgotten");
}
