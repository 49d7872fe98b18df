//! The variables by which `samite run` invites a process to its job.

/// The inherited descriptor that holds the rank's ticket: `fd:` and its number.
pub const CONTROL: &str = "SAMITE_CONTROL";
/// The rank.
pub const RANK: &str = "SAMITE_RANK";
/// The number of ranks.
pub const SIZE: &str = "SAMITE_SIZE";
/// The job's name.
pub const JOB: &str = "SAMITE_JOB";
/// The transport that the user selected. A user may set this variable too, unlike the variables in [`OF_THE_LAUNCHER`].
pub const TRANSPORT: &str = "SAMITE_TRANSPORT";

/// The launcher to join, if the environment contains the variables of several launchers or of none.
pub const LAUNCHER: &str = "SAMITE_LAUNCHER";

/// Host and port of the rendezvous, for ranks without a launcher.
pub const RENDEZVOUS: &str = "SAMITE_RENDEZVOUS";

/// The variables with which a user chooses how a program joins, with their meanings.
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

/// The variables that `samite run` sets, and users must not, with their meanings.
pub const OF_THE_LAUNCHER: [(&str, &str); 4] = [
    (CONTROL, "The inherited descriptor that holds the rank's ticket: `fd:` and its number."),
    (RANK, "The rank."),
    (SIZE, "The number of ranks."),
    (JOB, "The job's name, 16 hexadecimal digits."),
];
