//! To what the ranks of a host are bound.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What each rank is bound to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bind {
    /// Nothing: the system moves it between cores as it likes. Two jobs that share a host do not get into each
    /// other's way.
    #[default]
    None,
    /// A core of its own, neighbouring ranks to neighbouring cores.
    Core,
    /// All cores of a NUMA node; the ranks are dealt out in equal shares, neighbours together.
    Numa,
}

impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Bind, String> {
        match text {
            "none" => Ok(Bind::None),
            "core" => Ok(Bind::Core),
            "numa" => Ok(Bind::Numa),
            _ => Err("it is `core`, `numa` or `none`".to_owned()),
        }
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bind::None => "none",
            Bind::Core => "core",
            Bind::Numa => "numa",
        })
    }
}
