//! Every example verifies its own result: on every transport, alone and together, with and without a launcher.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Job, Scratch, text};

const TRANSPORTS: [&str; 3] = ["", "--transport samite-shm", "--transport tcp;ofi_rxm"];

fn example(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_samite")).with_file_name("examples").join(name);
    assert!(path.exists(), "build the examples first: cargo build -p samite --examples");
    path
}

/// Runs an example under `samite run` and checks its last line.
fn verifies(arguments: &str, name: &str, parameters: &[&str]) {
    let mut job = Job::new(arguments);
    job.command.arg("--").arg(example(name)).args(parameters);
    let output = job.output();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments}: {stdout}{stderr}");
    let last = stdout.lines().last().unwrap();
    assert!(last.starts_with(name) && last.ends_with(" verified"), "{arguments}: {stdout}");
    assert_eq!(stderr, "");
}

fn verifies_everywhere(name: &str, parameters: &[&str]) {
    for transport in TRANSPORTS {
        for ranks in [1, 2, 3, 4] {
            verifies(&format!("-n {ranks} {transport}"), name, parameters);
        }
    }
    // Without a launcher.
    let alone = Command::new(example(name)).args(parameters).output().unwrap();
    assert!(text(&alone.stdout).trim().ends_with("verified"), "{}", text(&alone.stderr));
}

#[test]
fn hello() {
    verifies_everywhere("hello", &[]);
}

#[test]
fn ring() {
    verifies_everywhere("ring", &["20"]);
}

#[test]
fn farm() {
    verifies_everywhere("farm", &["50"]);
}

#[test]
fn heat2d() {
    verifies_everywhere("heat2d", &["61", "20"]);
}

#[test]
fn heat2d_with_windows() {
    verifies_everywhere("heat2d", &["61", "20", "windows"]);
}

#[test]
fn hashtable() {
    verifies_everywhere("hashtable", &["500"]);
}

#[test]
fn matvec() {
    verifies_everywhere("matvec", &["101"]);
}

#[test]
fn kmeans() {
    verifies_everywhere("kmeans", &["1000", "7", "5"]);
}

#[test]
fn fft() {
    verifies_everywhere("fft", &["16"]);
}

#[test]
fn radix() {
    verifies_everywhere("radix", &["5003"]);
}

#[test]
fn radix_by_collectives() {
    verifies_everywhere("radix_collectives", &["5003"]);
    // Some ranks have no keys.
    verifies("-n 4", "radix_collectives", &["2"]);
}

/// The last rank ends itself, and the others go on without it.
#[test]
fn solver() {
    for transport in TRANSPORTS {
        for ranks in [1, 2, 3, 5] {
            let mut job =
                Job::new(&format!("-n {ranks} {transport} --on-failure continue --exit-code rank0"));
            job.command.arg("--").arg(example("solver")).args(["301", "60"]);
            let output = job.output();
            let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
            assert!(output.status.success(), "{transport}: {stdout}{stderr}");
            let survivors = if ranks == 1 { 1 } else { ranks - 1 };
            let expected =
                format!("solver: ranks={ranks} survivors={survivors} unknowns=301 steps=60 verified");
            assert_eq!(stdout.lines().last(), Some(&expected[..]), "{stderr}");
        }
    }
}

#[test]
fn radix_of_a_file() {
    let scratch = Scratch::new("radix");
    let file = scratch.0.join("keys");
    let keys: Vec<u8> = (0..1001_u64).rev().flat_map(|key| (key * key).to_le_bytes()).collect();
    std::fs::write(&file, keys).unwrap();
    verifies("-n 3", "radix", &[file.to_str().unwrap()]);
    std::fs::write(&file, []).unwrap();
    verifies("-n 3", "radix", &[file.to_str().unwrap()]);
}

#[test]
fn more_ranks_than_the_problem_has_room_for() {
    let mut job = Job::new("-n 3");
    job.command.arg("--").arg(example("heat2d")).arg("2");
    let output = job.output();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("2 x 2 cells do not go round 1 x 3 ranks"),
        "{}",
        text(&output.stderr)
    );
    verifies("-n 4", "radix", &["2"]);
}

#[test]
fn under_a_foreign_launcher_nothing_runs() {
    let output = Command::new(example("hello")).env("PMI_RANK", "0").env("PMI_SIZE", "4").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    let message = "PMI_RANK is set, so a PMI launcher without a PMI_FD has started this process";
    assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
}
