//! The choice of the provider between hosts, if the user selects none.
//!
//! All ranks of a job must open the same provider, and their hosts may have different versions of libfabric. So the
//! default does not depend on the providers that a host offers: it is the fastest one over TCP that every supported
//! version has, and that frees the memory of a dead peer's operations at once. Hosts with another network need the
//! user's choice.

use super::offer::Offer;

/// The provider between hosts, if the user selects none.
pub const DEFAULT: &str = "tcp;ofi_rxm";

/// The reason why a provider that runs over TCP is not the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Against {
    /// The provider keeps the connection of a fenced peer.
    #[error("memory that a dead peer may still access is held to the end of the job")]
    NoFence,
    /// Some supported versions of libfabric do not have the provider.
    #[error("only libfabric 1.16 and 1.17 have it, and all hosts of a job need the same provider")]
    NotEverywhere,
}

/// Returns the reason why a provider is not the default, or `Ok` for the default. Returns `None` if the provider
/// does not run over TCP. `fence` is true if the provider closes the connection of a fenced peer.
pub fn default_over_tcp(provider: &str, fence: bool) -> Option<Result<(), Against>> {
    if provider == DEFAULT {
        return Some(Ok(()));
    }
    match Offer::core(provider) {
        "tcp" | "net" | "sockets" if !fence => Some(Err(Against::NoFence)),
        "net" => Some(Err(Against::NotEverywhere)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_one_that_nothing_is_said_against() {
        use Against::{NoFence, NotEverywhere};
        for (provider, fence, verdict) in [
            ("tcp;ofi_rxm", true, Some(Ok(()))),
            // The user can disable the fence of all providers.
            ("tcp;ofi_rxm", false, Some(Ok(()))),
            ("tcp", false, Some(Err(NoFence))),
            ("net", false, Some(Err(NoFence))),
            ("sockets", false, Some(Err(NoFence))),
            ("net;ofi_rxm", true, Some(Err(NotEverywhere))),
            ("verbs;ofi_rxm", true, None),
            ("udp;ofi_rxd", false, None),
            ("shm", false, None),
        ] {
            assert_eq!(default_over_tcp(provider, fence), verdict, "{provider}");
        }
    }
}
