//! The messages to users when a job does not start, each provoked by a real fault.

use std::fmt::Write;
use std::net::TcpListener;
use std::process::Command;

/// Scripts in which `rank` is a program that joins its job, and `samite` the command.
const SCRIPTS: &[&str] = &[
    // A transport or interface that does not exist.
    "SAMITE_TRANSPORT=verbs rank",
    "SAMITE_TRANSPORT='tcp;ofi_rxm' FI_PROVIDER=sockets rank",
    "SAMITE_TRANSPORT=tcp rank",
    "SAMITE_TRANSPORT='tcp;ofi_rxm' SAMITE_INTERFACE=nowhere rank 2>&1 | sed 's/one of .*/one of …/' >&2",
    "samite run -n 1 --transport nonsense -- samite self-test",
    // Invalid values.
    "SAMITE_TRANSPORT= rank",
    "SAMITE_EAGER_MAX=2M rank",
    "SAMITE_LINGER_US=-1 rank",
    "SAMITE_SHM_RING_BYTES=5000 rank",
    "SAMITE_DETECTION_TIME=0.1 samite run -n 1 -- true",
    // Limits of the system.
    "(ulimit -f 8; SAMITE_TRANSPORT=samite-shm rank) 2>&1 | sed 's/of [0-9]* bytes/of … bytes/' >&2",
    "ulimit -n 64; samite run -n 20 -- true",
    "FI_TCP_PORT_LOW_RANGE=29999 FI_TCP_PORT_HIGH_RANGE=29999 \
     SAMITE_TRANSPORT='tcp;ofi_rxm' samite run -n 1 -- samite self-test",
    // Launchers that are incomplete, unsupported, or several.
    "OMPI_COMM_WORLD_SIZE=2 rank",
    "PMI_RANK=0 rank",
    "SLURM_NTASKS=2 SLURM_PROCID=0 SLURM_STEP_ID=0 rank",
    "WORLD_SIZE=2 RANK=0 rank",
    "PMIX_NAMESPACE=a PMIX_RANK=0 PMI_FD=7 PMI_RANK=0 PMI_SIZE=2 rank",
    "PMI_FD=77 PMI_RANK=0 PMI_SIZE=2 rank",
    "SAMITE_RENDEZVOUS=127.0.0.1:1 SAMITE_RANK=1 SAMITE_SIZE=2 SAMITE_JOIN_TIMEOUT=0.1 rank",
    "SAMITE_RENDEZVOUS=127.0.0.1:1 SAMITE_SIZE=2 rank",
    "samite rendezvous -n 2 192.0.2.1:7000",
    "samite rendezvous -n 2 node1:7000",
    "SAMITE_RANK=0 rank",
    "SAMITE_CONTROL=7 SAMITE_RANK=0 SAMITE_SIZE=1 SAMITE_JOB=1 rank",
    "SAMITE_CONTROL=fd:7 SAMITE_RANK=2 SAMITE_SIZE=2 SAMITE_JOB=1 rank",
    "SAMITE_CONTROL=fd:7 SAMITE_RANK=0 SAMITE_SIZE=1 SAMITE_JOB=stale rank",
    "SAMITE_CONTROL=fd:777 SAMITE_RANK=0 SAMITE_SIZE=1 SAMITE_JOB=1 rank",
    "samite run -n 1 -- env SAMITE_JOB=00000000000000ab SAMITE_SIZE=5 samite self-test",
    "samite run -n 1 -- sh -c 'samite self-test 2>/dev/null; samite self-test'",
    // Programs and hosts.
    "samite run -n 1 -- no-such-program-anywhere",
    "samite run -n 1 -- /etc/passwd",
    "samite run -n 1 --hosts a --ssh no-such-shell -- true",
    "samite run -n 3 --hosts a:1,b:1 -- true",
    "samite run -n 1 --hostfile /no/such/file -- true",
    "samite run -n 1 --hostfile /dev/null -- true",
    "samite run -n 0 -- true",
];

#[test]
fn every_message_says_what_was_tried_and_what_to_do() {
    let samite = std::path::Path::new(env!("CARGO_BIN_EXE_samite"));
    let folder = samite.parent().unwrap().to_str().unwrap();
    // Takes the only port that one of the scripts allows to libfabric, so that no port is left. If the bind fails,
    // another process has the port, which has the same effect.
    let _taken = TcpListener::bind("0.0.0.0:29999");
    let mut messages = String::new();
    for script in SCRIPTS {
        let mut shell = Command::new("sh");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SAMITE_"))
        {
            shell.env_remove(name);
        }
        let script_with_rank = format!("PATH='{folder}':$PATH\nrank() {{ samite self-test; }}\n{script}");
        let output = shell.args(["-c", &script_with_rank]).output().unwrap();
        // `samite run` also reports the exit of the rank, in a line before or after the rank's own message. Leave that
        // line out.
        let text = String::from_utf8(output.stderr).unwrap();
        let said: String =
            text.split_inclusive('\n').filter(|line| !line.starts_with("samite run: rank 0")).collect();
        assert!(!said.is_empty(), "{script} says nothing");
        writeln!(messages, "$ {script}\n{said}").unwrap();
    }
    insta::assert_snapshot!(messages);
}
