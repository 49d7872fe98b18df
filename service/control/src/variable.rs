//! The variables by which `samite run` invites a process to its job.

/// The inherited descriptor that holds the rank's ticket: `fd:` and its number.
pub const CONTROL: &str = "SAMITE_CONTROL";
/// The rank.
pub const RANK: &str = "SAMITE_RANK";
/// The number of ranks.
pub const SIZE: &str = "SAMITE_SIZE";
/// The job's name.
pub const JOB: &str = "SAMITE_JOB";
/// The transport that the user asked for; the only one that a user may set.
pub const TRANSPORT: &str = "SAMITE_TRANSPORT";

/// Which launcher to join, where several or none seem to be at work.
pub const LAUNCHER: &str = "SAMITE_LAUNCHER";

/// Where the ranks of a job meet that no launcher brings together: host and port.
pub const RENDEZVOUS: &str = "SAMITE_RENDEZVOUS";

/// Those by which a user says how a program is to join: with their meanings.
pub const OF_JOINING: [(&str, &str); 2] = [
    (
        LAUNCHER,
        "Which launcher to join: `pmi`, `pmix` or `rendezvous`, or `none` to run each process alone. By default the one \
         whose variables are there.",
    ),
    (
        RENDEZVOUS,
        "Where ranks meet that have only their numbers: host and port. Rank 0 listens there, or `samite rendezvous`. The \
         rank is in SAMITE_RANK, RANK, JOB_COMPLETION_INDEX or SLURM_PROCID, the number of ranks in SAMITE_SIZE, WORLD_SIZE \
         or SLURM_NTASKS. By default MASTER_ADDR, and the port after MASTER_PORT.",
    ),
];

/// Those that `samite run` sets, and no user: with their meanings.
pub const OF_THE_LAUNCHER: [(&str, &str); 4] = [
    (CONTROL, "The inherited descriptor that holds the rank's ticket: `fd:` and its number."),
    (RANK, "The rank."),
    (SIZE, "The number of ranks."),
    (JOB, "The job's name, 16 hexadecimal digits."),
];
