//! Detection, from the environment, of how this process was started.

use std::ffi::OsString;
use std::str::FromStr;

use samite_control::JobId;
use samite_control::variable::{CONTROL, JOB, LAUNCHER, RANK, RENDEZVOUS, SIZE};

use super::Refusal;
use super::pmi::{PmiJob, Wire};
use super::pmix::PmixJob;
use super::rendezvous::Rendezvous;

/// The way in which this process was started, with the launcher's description of the job: see
/// [`Launch`](super::Launch).
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Detected {
    Invited(Invitation),
    Pmi(PmiJob),
    Pmix(PmixJob),
    Rendezvous(Rendezvous),
    Alone,
}

/// The environment's description of a job of `samite run`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invitation {
    pub(crate) fd: i32,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) job: JobId,
}

impl Detected {
    /// Determines the launcher as [`Launch::detect`](super::Launch::detect) does, from the variables in `env`.
    pub(crate) fn from_variables(env: &impl Fn(&str) -> Option<OsString>) -> Result<Detected, Refusal> {
        let asked: Option<Choice> = parse(env, LAUNCHER, "`pmi`, `pmix`, `rendezvous` or `none`", BY_USER)?;
        let has = |name| env(name).is_some();
        // SAMITE_RANK and SAMITE_SIZE may also be set for a rendezvous. Then they do not mean that `samite run` started
        // this process.
        let meets = has(RENDEZVOUS) && !has(CONTROL);
        if let Some(present) = [CONTROL, RANK, SIZE, JOB].into_iter().find(|name| has(name) && !meets) {
            return Invitation::detect(env, present).map(Detected::Invited);
        }
        match (asked, has(PMI_FD), has(PMIX_NAMESPACE)) {
            (Some(Choice::None), ..) => return Ok(Detected::Alone),
            (Some(Choice::Pmi), ..) => return pmi(env, LAUNCHER).map(Detected::Pmi),
            (Some(Choice::Pmix), ..) => return pmix(env, LAUNCHER).map(Detected::Pmix),
            (Some(Choice::Rendezvous), ..) => return rendezvous(env, LAUNCHER).map(Detected::Rendezvous),
            (None, ..) if meets => return rendezvous(env, RENDEZVOUS).map(Detected::Rendezvous),
            (None, true, true) => {
                return Err(Refusal::SeveralLaunchers { first: PMI_FD, second: PMIX_NAMESPACE });
            }
            (None, true, false) => return pmi(env, PMI_FD).map(Detected::Pmi),
            (None, false, true) => return pmix(env, PMIX_NAMESPACE).map(Detected::Pmix),
            (None, false, false) if meets_as_torch(env) => {
                return rendezvous(env, MASTER_ADDR).map(Detected::Rendezvous);
            }
            (None, false, false) => {}
        }
        match FOREIGN_LAUNCHERS.iter().find(|foreign| foreign.is_at_work(env)) {
            Some(&Foreign { variable, launcher, fix, .. }) => {
                Err(Refusal::ForeignLauncher { variable, launcher, fix })
            }
            None => Ok(Detected::Alone),
        }
    }
}

impl Invitation {
    fn detect(env: &impl Fn(&str) -> Option<OsString>, present: &'static str) -> Result<Invitation, Refusal> {
        let required = |missing| move || Refusal::Incomplete { present, missing, fix: BY_SAMITE_RUN };
        let expected = "`fd:` and a number";
        let control: String = parse(env, CONTROL, expected, BY_SAMITE_RUN)?.ok_or_else(required(CONTROL))?;
        let rank = parse(env, RANK, "a rank", BY_SAMITE_RUN)?.ok_or_else(required(RANK))?;
        let size = parse(env, SIZE, "the number of ranks", BY_SAMITE_RUN)?.ok_or_else(required(SIZE))?;
        let expected_job = "a job's id in hexadecimal digits";
        let job = parse(env, JOB, expected_job, BY_SAMITE_RUN)?.ok_or_else(required(JOB))?;
        let Some(fd) = control.strip_prefix("fd:").and_then(|number| number.parse::<u16>().ok()) else {
            return Err(Refusal::Malformed {
                variable: CONTROL,
                value: control,
                expected,
                fix: BY_SAMITE_RUN,
            });
        };
        in_range(rank, size, RANK, SIZE)?;
        Ok(Invitation { fd: fd.into(), rank, size, job })
    }
}

/// Returns the job of a PMI launcher, detected by the variable `present`.
fn pmi(env: &impl Fn(&str) -> Option<OsString>, present: &'static str) -> Result<PmiJob, Refusal> {
    let number = |variable, expected| {
        let missing = Refusal::Incomplete { present, missing: variable, fix: BY_ITS_LAUNCHER };
        parse(env, variable, expected, BY_ITS_LAUNCHER)?.ok_or(missing)
    };
    let fd = number(PMI_FD, "the number of a descriptor")?;
    let (rank, size) = (number(PMI_RANK, "a rank")?, number(PMI_SIZE, "the number of ranks")?);
    in_range(rank, size, PMI_RANK, PMI_SIZE)?;
    // Hydra speaks both versions of PMI, and Slurm's plugin is more complete in PMI-2. SLURM_STEP_ID does not show
    // which of the two started this process, since srun may have started Hydra; PMI-2 works with both.
    let wire = if env("SLURM_STEP_ID").is_some() { Wire::Two } else { Wire::One };
    Ok(PmiJob { fd, rank, size, wire })
}

/// Returns the job of a launcher with a PMIx server, detected by the variable `present`.
fn pmix(env: &impl Fn(&str) -> Option<OsString>, present: &'static str) -> Result<PmixJob, Refusal> {
    let missing = |missing| Refusal::Incomplete { present, missing, fix: BY_ITS_LAUNCHER };
    if env(PMIX_NAMESPACE).is_none() {
        return Err(missing(PMIX_NAMESPACE));
    }
    let rank = parse(env, PMIX_RANK, "a rank", BY_ITS_LAUNCHER)?.ok_or(missing(PMIX_RANK))?;
    Ok(PmixJob { rank })
}

/// Returns true if the variables of `torch.distributed` suffice for a rendezvous of more than one process.
fn meets_as_torch(env: &impl Fn(&str) -> Option<OsString>) -> bool {
    let all = [MASTER_ADDR, MASTER_PORT, "RANK", "WORLD_SIZE"].into_iter().all(|name| env(name).is_some());
    all && env("WORLD_SIZE").is_some_and(|size| size.to_str() != Some("1"))
}

/// Returns the job with a rendezvous at an address, detected by the variable `present`.
fn rendezvous(env: &impl Fn(&str) -> Option<OsString>, present: &'static str) -> Result<Rendezvous, Refusal> {
    let missing = |missing| Refusal::Incomplete { present, missing, fix: BY_RENDEZVOUS };
    let host_and_port = "a host and a port, as in `node1:7000`";
    let address = match parse::<String>(env, RENDEZVOUS, host_and_port, BY_USER)? {
        Some(address) => {
            let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
                let (variable, value) = (RENDEZVOUS, address);
                return Err(Refusal::Malformed { variable, value, expected: host_and_port, fix: BY_USER });
            }
            address
        }
        None => {
            let host: String =
                parse(env, MASTER_ADDR, "a host", BY_USER)?.ok_or_else(|| missing(RENDEZVOUS))?;
            let expected = "a port below 65535";
            let port: u16 =
                parse(env, MASTER_PORT, expected, BY_USER)?.ok_or_else(|| missing(MASTER_PORT))?;
            // torch may use this port itself in the same processes, so the rendezvous uses the next port.
            let Some(port) = port.checked_add(1) else {
                let (variable, value) = (MASTER_PORT, port.to_string());
                return Err(Refusal::Malformed { variable, value, expected, fix: BY_USER });
            };
            match host.contains(':') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            }
        }
    };
    let first = |names: &[&'static str]| names.iter().copied().find(|name| env(name).is_some());
    let rank_variable = first(&RANKS).ok_or_else(|| missing(RANK))?;
    let size_variable = first(&SIZES).ok_or_else(|| missing(SIZE))?;
    let rank = parse(env, rank_variable, "a rank", BY_RENDEZVOUS)?.ok_or_else(|| missing(RANK))?;
    let size =
        parse(env, size_variable, "the number of ranks", BY_RENDEZVOUS)?.ok_or_else(|| missing(SIZE))?;
    in_range(rank, size, rank_variable, size_variable)?;
    Ok(Rendezvous { address, rank, size })
}

fn in_range(
    rank: u32,
    size: u32,
    rank_variable: &'static str,
    size_variable: &'static str,
) -> Result<(), Refusal> {
    match rank < size {
        true => Ok(()),
        false => Err(Refusal::RankOutOfRange { rank, size, rank_variable, size_variable }),
    }
}

fn parse<T: FromStr>(
    env: &impl Fn(&str) -> Option<OsString>,
    variable: &'static str,
    expected: &'static str,
    fix: &'static str,
) -> Result<Option<T>, Refusal> {
    let Some(value) = env(variable) else { return Ok(None) };
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(parsed) => Ok(Some(parsed)),
        None => {
            let value = value.to_string_lossy().into_owned();
            Err(Refusal::Malformed { variable, value, expected, fix })
        }
    }
}

/// The values of `SAMITE_LAUNCHER`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Pmi,
    Pmix,
    Rendezvous,
    None,
}

impl FromStr for Choice {
    type Err = ();

    fn from_str(text: &str) -> Result<Choice, ()> {
        match text {
            "pmi" => Ok(Choice::Pmi),
            "pmix" => Ok(Choice::Pmix),
            "rendezvous" => Ok(Choice::Rendezvous),
            "none" => Ok(Choice::None),
            _ => Err(()),
        }
    }
}

const PMI_FD: &str = "PMI_FD";
const PMI_RANK: &str = "PMI_RANK";
const PMI_SIZE: &str = "PMI_SIZE";
const PMIX_NAMESPACE: &str = "PMIX_NAMESPACE";
const PMIX_RANK: &str = "PMIX_RANK";
const MASTER_ADDR: &str = "MASTER_ADDR";
const MASTER_PORT: &str = "MASTER_PORT";

/// The variables that may hold the rank of a process with a rendezvous, in order of precedence: the variables of
/// Samite, of torchrun, of Kubernetes' indexed jobs, and of srun.
const RANKS: [&str; 4] = [RANK, "RANK", "JOB_COMPLETION_INDEX", "SLURM_PROCID"];
/// The variables that may hold the number of ranks, in the same order. Kubernetes sets none.
const SIZES: [&str; 3] = [SIZE, "WORLD_SIZE", "SLURM_NTASKS"];

/// The fix for a wrong or missing variable that `samite run` sets. The next constants are the fixes for variables that
/// other programs or the user set.
const BY_SAMITE_RUN: &str = "`samite run -n N -- program` sets them all; to run the program alone, unset every SAMITE_ \
                             variable";
const BY_ITS_LAUNCHER: &str = "the launcher sets them all, so pass them on unchanged through wrappers and containers; to \
                               run one process alone, set SAMITE_LAUNCHER=none";
const BY_RENDEZVOUS: &str = "to meet at SAMITE_RENDEZVOUS each process needs its rank, in SAMITE_RANK, RANK, \
                             JOB_COMPLETION_INDEX or SLURM_PROCID, and the number of ranks, in SAMITE_SIZE, WORLD_SIZE or \
                             SLURM_NTASKS";
const BY_USER: &str = "correct it, or unset it";

/// A launcher that is not supported, and the variable that reveals it.
struct Foreign {
    variable: &'static str,
    launcher: &'static str,
    sign: Sign,
    /// The way to start the program instead.
    fix: &'static str,
}

enum Sign {
    /// The variable is set, to any value.
    Set,
    /// The variable is set to another value than 1, and the variable with this name is set to any value.
    SeveralWith(&'static str),
}

impl Foreign {
    const fn new(variable: &'static str, launcher: &'static str, sign: Sign, fix: &'static str) -> Foreign {
        Foreign { variable, launcher, sign, fix }
    }

    fn is_at_work(&self, env: &impl Fn(&str) -> Option<OsString>) -> bool {
        match self.sign {
            Sign::Set => env(self.variable).is_some(),
            Sign::SeveralWith(other) => {
                let several = env(self.variable).is_some_and(|value| value.to_str() != Some("1"));
                several && env(other).is_some()
            }
        }
    }
}

const SAMITE_RUN: &str = "start the program with `samite run -n N -- program`";
const SRUN: &str = "start the program with `srun --mpi=pmix` or `--mpi=pmi2`, or set SAMITE_RENDEZVOUS to a port of rank \
                    0's host, as in `node1:7000`";
const MEET: &str = "set SAMITE_RENDEZVOUS to a port of rank 0's host, as in `node1:7000`, and SAMITE_SIZE to the number \
                    of ranks";

/// The variables are from each launcher's documentation. A variable that only one launcher sets comes before the
/// variables that several launchers set, so that the specific launcher is found first.
const FOREIGN_LAUNCHERS: &[Foreign] = &[
    Foreign::new("OMPI_COMM_WORLD_SIZE", "Open MPI's mpiexec without PMIx", Sign::Set, SAMITE_RUN),
    Foreign::new("MV2_COMM_WORLD_SIZE", "MVAPICH's mpirun_rsh", Sign::Set, SAMITE_RUN),
    Foreign::new("JSM_NAMESPACE_SIZE", "IBM's jsrun", Sign::Set, SAMITE_RUN),
    Foreign::new("PALS_RANKID", "Cray PALS (mpiexec or aprun)", Sign::Set, SAMITE_RUN),
    Foreign::new("FLUX_TASK_RANK", "flux run without PMI", Sign::Set, SAMITE_RUN),
    Foreign::new("PMIX_RANK", "a PMIx launcher without a PMIX_NAMESPACE", Sign::Set, SAMITE_RUN),
    Foreign::new("MPI_LOCALNRANKS", "Hydra (the mpiexec of MPICH and Intel MPI)", Sign::Set, SAMITE_RUN),
    Foreign::new("PMI_PORT", "a PMI launcher that listens on a port", Sign::Set, SAMITE_RUN),
    Foreign::new("PMI_RANK", "a PMI launcher without a PMI_FD", Sign::Set, SAMITE_RUN),
    Foreign::new("PMI_SIZE", "a PMI launcher without a PMI_FD", Sign::Set, SAMITE_RUN),
    // In a batch script, which is one process, Slurm also sets the number of tasks and a rank. Only a process of a
    // step, which srun starts, has SLURM_STEP_ID.
    Foreign::new("SLURM_NTASKS", "Slurm (srun without --mpi)", Sign::SeveralWith("SLURM_STEP_ID"), SRUN),
    Foreign::new(
        "WORLD_SIZE",
        "torchrun (or a launcher that sets its variables)",
        Sign::SeveralWith("RANK"),
        MEET,
    ),
    Foreign::new("JOB_COMPLETION_INDEX", "an indexed job of Kubernetes", Sign::Set, MEET),
];

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn detect(variables: &str) -> Result<Detected, Refusal> {
        let variables: Vec<(&str, &str)> =
            variables.split_whitespace().map(|pair| pair.split_once('=').unwrap()).collect();
        Detected::from_variables(&|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn a_complete_invitation_is_accepted_under_any_other_launcher() {
        let samite = "SAMITE_CONTROL=fd:7 SAMITE_RANK=2 SAMITE_SIZE=4 SAMITE_JOB=00000000000000ab";
        let invitation = Invitation { fd: 7, rank: 2, size: 4, job: JobId(0xab) };
        assert_eq!(detect(samite).unwrap(), Detected::Invited(invitation));
        // `samite run` in a batch job: Slurm's variables are set but do not matter.
        let in_slurm = detect(&format!("{samite} SLURM_NTASKS=4 SLURM_PROCID=0"));
        assert!(matches!(in_slurm.unwrap(), Detected::Invited(_)));
    }

    #[test]
    fn pmi_is_joined_in_the_version_that_its_launcher_speaks_best() {
        let hydra = "PMI_FD=9 PMI_RANK=1 PMI_SIZE=4 MPI_LOCALNRANKS=4 MPI_LOCALRANKID=1";
        let job = |wire| Detected::Pmi(PmiJob { fd: 9, rank: 1, size: 4, wire });
        assert_eq!(detect(hydra).unwrap(), job(Wire::One));
        let slurm =
            "PMI_FD=9 PMI_RANK=1 PMI_SIZE=4 SLURM_STEP_ID=0 SLURM_NTASKS=4 SLURM_PROCID=1 PMI_JOBID=7.0";
        assert_eq!(detect(slurm).unwrap(), job(Wire::Two));
        assert_eq!(detect(&format!("{hydra} SAMITE_LAUNCHER=pmi")).unwrap(), job(Wire::One));
        assert_eq!(detect(&format!("{hydra} SAMITE_LAUNCHER=none")).unwrap(), Detected::Alone);
    }

    #[test]
    fn ranks_meet_at_the_given_address() {
        let meets = |variables| match detect(variables).unwrap() {
            Detected::Rendezvous(Rendezvous { address, rank, size }) => (address, rank, size),
            other => panic!("{other:?}"),
        };
        let at = |address: &str, rank, size| (address.to_owned(), rank, size);
        let torchrun =
            "MASTER_ADDR=node1 MASTER_PORT=29500 RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2";
        assert_eq!(meets(torchrun), at("node1:29501", 3, 8));
        assert_eq!(meets("MASTER_ADDR=fd00::1 MASTER_PORT=1 RANK=0 WORLD_SIZE=2"), at("[fd00::1]:2", 0, 2));
        let kubernetes = "SAMITE_RENDEZVOUS=job-0.svc:7000 JOB_COMPLETION_INDEX=2 SAMITE_SIZE=4";
        assert_eq!(meets(kubernetes), at("job-0.svc:7000", 2, 4));
        assert_eq!(
            meets("SAMITE_RENDEZVOUS=a:1 SAMITE_RANK=0 SAMITE_SIZE=2 RANK=1 WORLD_SIZE=3"),
            at("a:1", 0, 2)
        );
        // An explicit choice has precedence over detection.
        let srun = "SAMITE_RENDEZVOUS=a:1 SLURM_PROCID=1 SLURM_NTASKS=2 PMI_FD=9 PMI_RANK=1 PMI_SIZE=2";
        assert_eq!(meets(srun), at("a:1", 1, 2));
        assert_eq!(
            meets(&format!("{torchrun} PMI_FD=9 SAMITE_LAUNCHER=rendezvous")),
            at("node1:29501", 3, 8)
        );
        // A launcher with a key-value space has precedence over torch's variables.
        let both = detect(&format!("{torchrun} PMI_FD=9 PMI_RANK=3 PMI_SIZE=8"));
        assert!(matches!(both.unwrap(), Detected::Pmi(_)));
        let one = "MASTER_ADDR=node1 MASTER_PORT=29500 RANK=0 WORLD_SIZE=1";
        assert_eq!(detect(one).unwrap(), Detected::Alone);
        let samite = "SAMITE_CONTROL=fd:7 SAMITE_RANK=2 SAMITE_SIZE=4 SAMITE_JOB=ab SAMITE_RENDEZVOUS=a:1";
        assert!(matches!(detect(samite).unwrap(), Detected::Invited(_)));
    }

    #[test]
    fn alone_only_where_nothing_suggests_a_launcher() {
        assert_eq!(detect("").unwrap(), Detected::Alone);
        assert_eq!(detect("SAMITE_TRANSPORT=samite-shm").unwrap(), Detected::Alone);
        // An allocation of one task, the variables of a job script and a lone RANK do not indicate other processes.
        for alone in [
            "SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_STEP_ID=0",
            "SLURM_NTASKS=4 SLURM_PROCID=0",
            "SLURM_NTASKS=4",
            "WORLD_SIZE=1 RANK=0",
            "WORLD_SIZE=4",
            "RANK=3",
        ] {
            assert_eq!(detect(alone).unwrap(), Detected::Alone, "{alone}");
        }
    }

    #[test]
    fn every_error_says_what_to_do() {
        let mut messages = String::new();
        for variables in [
            "SAMITE_RANK=0",
            "SAMITE_CONTROL=fd:3 SAMITE_RANK=0 SAMITE_JOB=1",
            "SAMITE_CONTROL=fd:3 SAMITE_RANK=0 SAMITE_SIZE=1",
            "SAMITE_CONTROL=3 SAMITE_RANK=0 SAMITE_SIZE=1 SAMITE_JOB=1",
            "SAMITE_CONTROL=fd:-1 SAMITE_RANK=0 SAMITE_SIZE=1 SAMITE_JOB=1",
            "SAMITE_CONTROL=fd:3 SAMITE_RANK=-1 SAMITE_SIZE=1 SAMITE_JOB=1",
            "SAMITE_CONTROL=fd:3 SAMITE_RANK=0 SAMITE_SIZE=99999999999 SAMITE_JOB=1",
            "SAMITE_CONTROL=fd:3 SAMITE_RANK=0 SAMITE_SIZE=1 SAMITE_JOB=xyz",
            "SAMITE_CONTROL=fd:3 SAMITE_RANK=4 SAMITE_SIZE=4 SAMITE_JOB=1",
            "SAMITE_CONTROL=fd:3 SAMITE_RANK=0 SAMITE_SIZE=0 SAMITE_JOB=1",
            "OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=0",
            "PMIX_NAMESPACE=job.1",
            "PMIX_NAMESPACE=job.1 PMIX_RANK=-1",
            "PMIX_NAMESPACE=job.1 PMIX_RANK=0 PMI_FD=9 PMI_RANK=0 PMI_SIZE=4",
            "SAMITE_LAUNCHER=pmix PMIX_RANK=0 PMI_FD=9 PMI_RANK=0 PMI_SIZE=4",
            "MV2_COMM_WORLD_SIZE=4",
            "JSM_NAMESPACE_SIZE=4",
            "PALS_RANKID=1 PMI_RANK=1",
            "FLUX_TASK_RANK=1",
            "MPI_LOCALNRANKS=4 PMI_RANK=0 PMI_SIZE=4",
            "PMI_FD=9 PMI_RANK=4 PMI_SIZE=4",
            "PMI_FD=x PMI_RANK=0 PMI_SIZE=4",
            "SAMITE_LAUNCHER=pmi PMI_RANK=0 PMI_SIZE=4",
            "SAMITE_LAUNCHER=mpi",
            "PMIX_RANK=0 SLURM_NTASKS=2 SLURM_PROCID=0 SLURM_STEP_ID=0",
            "PMI_FD=9 PMI_RANK=0",
            "PMI_PORT=host:1",
            "PMI_RANK=0",
            "PMI_SIZE=1",
            "SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_ID=0",
            "WORLD_SIZE=2 RANK=1 LOCAL_RANK=1",
            "JOB_COMPLETION_INDEX=0",
            "SAMITE_RENDEZVOUS=a:1",
            "SAMITE_RENDEZVOUS=a:1 JOB_COMPLETION_INDEX=0",
            "SAMITE_RENDEZVOUS=a SAMITE_RANK=0 SAMITE_SIZE=2",
            "SAMITE_RENDEZVOUS=:1 SAMITE_RANK=0 SAMITE_SIZE=2",
            "SAMITE_RENDEZVOUS=a:1 SAMITE_RANK=2 SAMITE_SIZE=2",
            "SAMITE_LAUNCHER=rendezvous RANK=0 WORLD_SIZE=2",
            "MASTER_ADDR=a MASTER_PORT=65535 RANK=0 WORLD_SIZE=2",
            "MASTER_ADDR=a MASTER_PORT=http RANK=0 WORLD_SIZE=2",
        ] {
            writeln!(messages, "{variables}\n    {}", detect(variables).unwrap_err()).unwrap();
        }
        insta::assert_snapshot!(messages);
    }

    #[test]
    fn values_that_are_no_text_are_refused() {
        let error = Detected::from_variables(&|name| (name == RANK).then(|| OsString::from_vec(vec![0xff])))
            .unwrap_err();
        assert!(matches!(error, Refusal::Incomplete { missing: CONTROL, .. }));
        let error =
            Detected::from_variables(&|name| (name == LAUNCHER).then(|| OsString::from_vec(vec![0xff])))
                .unwrap_err();
        assert!(matches!(error, Refusal::Malformed { variable: LAUNCHER, .. }));
    }
}
