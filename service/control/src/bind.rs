//! The binding of a host's ranks to cores.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The part of the host to which each rank is bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bind {
    /// Ranks are not bound: the system may move a rank between cores. So two jobs that share a host are not confined to
    /// the same cores.
    #[default]
    None,
    /// Each rank is bound to a core that no other rank has. Ranks with consecutive numbers get neighbouring cores.
    Core,
    /// Each rank is bound to all cores of one NUMA node. A node gets as many ranks as its share of the host's cores
    /// demands, with consecutive numbers.
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
