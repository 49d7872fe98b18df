//! Deciding from the environment how this process was started.

use std::ffi::OsString;
use std::str::FromStr;

use super::BootstrapError;
use super::variable::{CONTROL, JOB, RANK, SIZE, TRANSPORT};
use crate::control::JobId;

/// How this process was started.
#[derive(Debug, PartialEq, Eq)]
pub enum Launch {
    /// By `samite run`: there is a job to join.
    Invited(Invitation),
    /// By nobody in particular: it is a job of one rank.
    Alone {
        /// The value of `SAMITE_TRANSPORT`.
        transport: Option<String>,
    },
}

/// What the environment says of the job to join.
#[derive(Debug, PartialEq, Eq)]
pub struct Invitation {
    pub(crate) fd: i32,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) job: JobId,
    pub(crate) transport: Option<String>,
}

impl Launch {
    /// Decides from the variables that `env` gives. Changes and opens nothing.
    ///
    /// # Errors
    /// [`BootstrapError`]: variables of `samite run` are missing or make no sense, or another launcher is at
    /// work, under which each process would otherwise believe to be alone.
    pub fn detect(env: &impl Fn(&str) -> Option<OsString>) -> Result<Launch, BootstrapError> {
        let transport = parse(env, TRANSPORT, "the name of a transport")?;
        let Some(present) = [CONTROL, RANK, SIZE, JOB].into_iter().find(|name| env(name).is_some()) else {
            return match foreign_launcher(env) {
                Some((variable, launcher)) => Err(BootstrapError::ForeignLauncher { variable, launcher }),
                None => Ok(Launch::Alone { transport }),
            };
        };
        let required = |missing| move || BootstrapError::Incomplete { present, missing };
        let control: String = parse(env, CONTROL, "`fd:` and a number")?.ok_or_else(required(CONTROL))?;
        let rank = parse(env, RANK, "a rank")?.ok_or_else(required(RANK))?;
        let size = parse(env, SIZE, "the number of ranks")?.ok_or_else(required(SIZE))?;
        let job = parse(env, JOB, "a job's id, in hexadecimal digits")?.ok_or_else(required(JOB))?;
        let Some(fd) = control.strip_prefix("fd:").and_then(|number| number.parse::<u16>().ok()) else {
            return Err(BootstrapError::Malformed {
                variable: CONTROL,
                value: control,
                expected: "`fd:` and a number",
            });
        };
        if rank >= size {
            return Err(BootstrapError::RankOutOfRange { rank, size });
        }
        Ok(Launch::Invited(Invitation { fd: fd.into(), rank, size, job, transport }))
    }
}

fn parse<T: FromStr>(
    env: &impl Fn(&str) -> Option<OsString>,
    variable: &'static str,
    expected: &'static str,
) -> Result<Option<T>, BootstrapError> {
    let Some(value) = env(variable) else { return Ok(None) };
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(parsed) => Ok(Some(parsed)),
        None => {
            let value = value.to_string_lossy().into_owned();
            Err(BootstrapError::Malformed { variable, value, expected })
        }
    }
}

/// The first sign of a launcher that we cannot join: its variable and its name.
fn foreign_launcher(env: &impl Fn(&str) -> Option<OsString>) -> Option<(&'static str, &'static str)> {
    FOREIGN_LAUNCHERS
        .iter()
        .find(|(variable, _, sign)| match sign {
            Sign::Set => env(variable).is_some(),
            Sign::SeveralWith(other) => {
                let several = env(variable).is_some_and(|value| value.to_str() != Some("1"));
                several && env(other).is_some()
            }
        })
        .map(|&(variable, launcher, _)| (variable, launcher))
}

enum Sign {
    /// The variable is set, to whatever value.
    Set,
    /// The variable is set to something else than 1, beside this other variable.
    SeveralWith(&'static str),
}

/// From each launcher's documentation; the specific first, since several set the general ones too.
const FOREIGN_LAUNCHERS: &[(&str, &str, Sign)] = &[
    ("OMPI_COMM_WORLD_SIZE", "Open MPI's mpiexec", Sign::Set),
    ("MV2_COMM_WORLD_SIZE", "MVAPICH's mpirun_rsh", Sign::Set),
    ("JSM_NAMESPACE_SIZE", "IBM's jsrun", Sign::Set),
    ("PALS_RANKID", "Cray PALS (mpiexec or aprun)", Sign::Set),
    ("FLUX_TASK_RANK", "flux run", Sign::Set),
    ("MPI_LOCALNRANKS", "Hydra (the mpiexec of MPICH and Intel MPI)", Sign::Set),
    ("PMIX_RANK", "a PMIx launcher (prterun, or srun --mpi=pmix)", Sign::Set),
    ("PMI_FD", "a PMI launcher (mpiexec, or srun --mpi=pmi2)", Sign::Set),
    ("PMI_PORT", "a PMI launcher (mpiexec)", Sign::Set),
    ("PMI_RANK", "a PMI launcher (mpiexec, or srun --mpi=pmi2)", Sign::Set),
    ("PMI_SIZE", "a PMI launcher (mpiexec, or srun --mpi=pmi2)", Sign::Set),
    ("SLURM_NTASKS", "Slurm (srun, or a batch script of several tasks)", Sign::SeveralWith("SLURM_PROCID")),
    ("WORLD_SIZE", "torchrun, or a launcher that sets its variables", Sign::SeveralWith("RANK")),
];

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn detect(variables: &str) -> Result<Launch, BootstrapError> {
        let variables: Vec<(&str, &str)> =
            variables.split_whitespace().map(|pair| pair.split_once('=').unwrap()).collect();
        Launch::detect(&|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn a_complete_invitation_is_accepted_under_any_other_launcher() {
        let samite = "SAMITE_CONTROL=fd:7 SAMITE_RANK=2 SAMITE_SIZE=4 SAMITE_JOB=00000000000000ab";
        let invitation = Invitation { fd: 7, rank: 2, size: 4, job: JobId(0xab), transport: None };
        assert_eq!(detect(samite).unwrap(), Launch::Invited(invitation));
        // `samite run` in a batch job: Slurm's variables are there and mean nothing.
        let in_slurm =
            detect(&format!("{samite} SLURM_NTASKS=4 SLURM_PROCID=0 SAMITE_TRANSPORT=tcp;ofi_rxm"));
        let Launch::Invited(invitation) = in_slurm.unwrap() else { panic!("there is an invitation") };
        assert_eq!(invitation.transport.as_deref(), Some("tcp;ofi_rxm"));
    }

    #[test]
    fn alone_only_where_nothing_suggests_a_launcher() {
        assert_eq!(detect("").unwrap(), Launch::Alone { transport: None });
        let transport = Some("samite-shm".to_owned());
        assert_eq!(detect("SAMITE_TRANSPORT=samite-shm").unwrap(), Launch::Alone { transport });
        // An allocation of one task, a job script's leftovers and a lone RANK say nothing of other processes.
        for alone in [
            "SLURM_NTASKS=1 SLURM_PROCID=0",
            "SLURM_NTASKS=4",
            "WORLD_SIZE=1 RANK=0",
            "WORLD_SIZE=4",
            "RANK=3",
        ] {
            assert_eq!(detect(alone).unwrap(), Launch::Alone { transport: None }, "{alone}");
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
            "MV2_COMM_WORLD_SIZE=4",
            "JSM_NAMESPACE_SIZE=4",
            "PALS_RANKID=1 PMI_RANK=1",
            "FLUX_TASK_RANK=1",
            "MPI_LOCALNRANKS=4 PMI_RANK=0 PMI_FD=9",
            "PMIX_RANK=0 SLURM_NTASKS=2 SLURM_PROCID=0",
            "PMI_FD=9 PMI_RANK=0",
            "PMI_PORT=host:1",
            "PMI_RANK=0",
            "PMI_SIZE=1",
            "SLURM_NTASKS=4 SLURM_PROCID=0",
            "WORLD_SIZE=2 RANK=1 LOCAL_RANK=1",
        ] {
            writeln!(messages, "{variables}\n    {}", detect(variables).unwrap_err()).unwrap();
        }
        insta::assert_snapshot!(messages);
    }

    #[test]
    fn values_that_are_no_text_are_refused() {
        let error =
            Launch::detect(&|name| (name == RANK).then(|| OsString::from_vec(vec![0xff]))).unwrap_err();
        assert!(matches!(error, BootstrapError::Incomplete { missing: CONTROL, .. }));
        let error =
            Launch::detect(&|name| (name == TRANSPORT).then(|| OsString::from_vec(vec![0xff]))).unwrap_err();
        assert!(matches!(error, BootstrapError::Malformed { variable: TRANSPORT, .. }));
    }
}
