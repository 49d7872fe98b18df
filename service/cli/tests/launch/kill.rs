//! When any one process of a job is killed with SIGKILL, no other process remains.

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Job, Processes, Running};

/// The script of a rank that starts children which outlive it, one of them in a session of its own, prints a line when
/// it is ready, and keeps running.
const CLINGING: &str =
    "sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' & echo $SAMITE_RANK $$; sleep 1000; sleep 1000";

/// Starts a job of 3 ranks that run `CLINGING`, waits until they are ready, and returns the job with the ranks'
/// processes.
fn clinging(arguments: &str) -> (Running, Vec<Pid>) {
    let mut job = Job::shell(arguments, CLINGING).start();
    let lines = job.lines(3);
    let ranks = lines.iter().map(|line| Pid::from_raw(line[2..].parse().unwrap()).unwrap()).collect();
    (job, ranks)
}

/// Returns handles of all processes of the job. These are the coordinator, the agent, and for each rank at least the
/// shell and two of its children.
fn all_processes(job: &Running) -> Processes {
    let processes = job.processes();
    assert!(processes.len() >= 2 + 3 * 3);
    processes
}

fn kill(process: Pid) {
    kill_process(process, Signal::KILL).unwrap();
}

#[test]
fn killing_the_coordinator_ends_all() {
    let (mut job, _) = clinging("-n 3");
    let processes = all_processes(&job);
    kill(job.coordinator_pid());
    processes.wait();
    assert_eq!(job.coordinator.wait().unwrap().code(), None);
    job.finish();
}

#[test]
fn killing_the_agent_ends_all() {
    let (job, _) = clinging("-n 3");
    let processes = all_processes(&job);
    kill(job.agent_pid());
    processes.wait();
    let (code, _, stderr) = job.finish();
    assert_eq!(code, Some(137));
    assert_eq!(
        stderr,
        "samite run: the agent of this node was killed by SIGKILL (signal 9), and the ranks with it\n"
    );
}

#[test]
fn killing_a_rank_ends_all() {
    let (job, ranks) = clinging("-n 3");
    let processes = all_processes(&job);
    kill(ranks[1]);
    processes.wait();
    let (code, _, stderr) = job.finish();
    assert_eq!(code, Some(137));
    assert_eq!(stderr, "samite run: rank 1 was killed by SIGKILL (signal 9); ending the job\n");
}

#[test]
fn killing_every_rank_ends_all_though_failures_do_not_matter() {
    let (job, ranks) = clinging("-n 3 --on-failure continue");
    let processes = all_processes(&job);
    ranks.into_iter().for_each(kill);
    processes.wait();
    assert_eq!(job.finish().0, Some(137));
}

#[test]
fn killing_a_stopped_job_ends_all() {
    let (mut job, ranks) = clinging("-n 3");
    let processes = all_processes(&job);
    for rank in ranks {
        kill_process(rank, Signal::STOP).unwrap();
    }
    kill(job.coordinator_pid());
    processes.wait();
    assert_eq!(job.coordinator.wait().unwrap().code(), None);
    job.finish();
}

#[test]
fn killing_the_coordinators_process_group_ends_all() {
    let mut job = Job::shell("-n 3", CLINGING);
    std::os::unix::process::CommandExt::process_group(&mut job.command, 0);
    let mut job = job.start();
    job.lines(3);
    let processes = all_processes(&job);
    rustix::process::kill_process_group(job.coordinator_pid(), Signal::KILL).unwrap();
    processes.wait();
    job.finish();
}
