//! The handshake by which the coordinator and the supervisor of another host authenticate each other.
//!
//! ```text
//! samite run (coordinator)                               supervisor of a host
//!      ── over the remote shell ── Invitation: two secrets ──▶
//!      ◀────────────────── connects over TCP ──────────────────
//!      ── Challenge: a nonce ─────────────────────────────────▶
//!      ◀────────── Hello: a nonce, proof of the agent's secret ─
//!      ── Answer: proof of the coordinator's secret ──────────▶
//!      ── the plan ───────────────────────────────────────────▶
//! ```
//! A proof is HMAC-SHA-256 (RFC 2104), with the secret as its key, of both nonces, the host, and the address to which
//! the supervisor connected. So no secret is sent, no proof is valid a second time, and neither side acts on a message
//! before it has the proof of the other side. Because a proof contains the address, a process that listens at a wrong
//! address cannot relay the messages to the coordinator and then take the agent's place. A process that can change
//! packets in transit can take the agent's place, since the connection is not encrypted.

use std::net::IpAddr;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::{PROTOCOL, Secret};

/// A random number that each side chooses for one connection.
pub type Nonce = [u8; 16];

/// The secrets of one host, which its invitation carries. No other process knows them.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Keys {
    /// The secret with which the coordinator proves that it sent the invitation.
    pub coordinator: Secret,
    /// The secret with which the supervisor proves that it received the invitation.
    pub agent: Secret,
}

/// The coordinator's first message on a connection.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Challenge {
    /// The coordinator's nonce.
    pub nonce: Nonce,
}

/// The supervisor's only message. The agent sends all later messages of that side.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The host's index.
    pub host: u32,
    /// The supervisor's nonce.
    pub nonce: Nonce,
    /// The proof that the supervisor received the invitation.
    pub proof: Proof,
}

/// The coordinator's answer to a hello with a right proof. The coordinator's later messages are for the agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The proof that the coordinator sent the invitation.
    pub proof: Proof,
}

/// A proof that a side knows its secret.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Proof([u8; 32]);

/// The facts of a connection that both sides know. A proof is computed from them and a secret.
#[derive(Debug, Clone, Copy)]
pub struct Transcript {
    /// The host's index.
    pub host: u32,
    /// The coordinator's address on this connection: for the supervisor the address to which it connected, for the
    /// coordinator the address at which it accepted the connection.
    pub coordinator: IpAddr,
    /// The coordinator's nonce.
    pub coordinator_nonce: Nonce,
    /// The supervisor's nonce.
    pub agent_nonce: Nonce,
}

/// The side that proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The coordinator.
    Coordinator,
    /// The supervisor, for the agent of its host.
    Agent,
}

impl Transcript {
    /// Returns the proof that `side` knows its secret.
    pub fn prove(&self, side: Side, keys: &Keys) -> Proof {
        Proof(self.mac(side, keys).finalize().into_bytes().into())
    }

    /// Returns true if `proof` proves that `side` knows its secret. The comparison takes the same time for each wrong
    /// proof, so that the time tells an attacker nothing about the right one.
    pub fn is_proven(&self, side: Side, keys: &Keys, proof: &Proof) -> bool {
        self.mac(side, keys).verify_slice(&proof.0).is_ok()
    }

    /// Returns the hash state over the transcript. Each part has a fixed length, so that different transcripts are
    /// always different bytes.
    fn mac(&self, side: Side, keys: &Keys) -> Hmac<Sha256> {
        let (name, key) = match side {
            Side::Coordinator => (&b"samite coordinator"[..], keys.coordinator),
            Side::Agent => (&b"samite agent"[..], keys.agent),
        };
        let address = match self.coordinator {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        Hmac::<Sha256>::new_from_slice(&key.0)
            .expect("a key may have any length")
            .chain_update(name)
            .chain_update(PROTOCOL.to_be_bytes())
            .chain_update(self.host.to_be_bytes())
            .chain_update(address.octets())
            .chain_update(self.coordinator_nonce)
            .chain_update(self.agent_nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: Keys = Keys { coordinator: Secret([1; 16]), agent: Secret([2; 16]) };

    fn transcript() -> Transcript {
        Transcript {
            host: 3,
            coordinator: [127, 0, 0, 1].into(),
            coordinator_nonce: [4; 16],
            agent_nonce: [5; 16],
        }
    }

    #[test]
    fn a_proof_holds_for_its_side_its_keys_and_its_connection_only() {
        let this = transcript();
        for side in [Side::Coordinator, Side::Agent] {
            let proof = this.prove(side, &KEYS);
            assert!(this.is_proven(side, &KEYS, &proof));
            let other = if side == Side::Coordinator { Side::Agent } else { Side::Coordinator };
            assert!(!this.is_proven(other, &KEYS, &proof));
            let one_key = Keys { coordinator: KEYS.coordinator, agent: KEYS.coordinator };
            assert!(!this.is_proven(other, &one_key, &this.prove(side, &one_key)));
            let keys = Keys { coordinator: Secret([6; 16]), agent: Secret([6; 16]) };
            assert!(!this.is_proven(side, &keys, &proof));
            for other in [
                Transcript { host: 4, ..this },
                Transcript { coordinator: [127, 0, 0, 2].into(), ..this },
                Transcript { coordinator_nonce: [5; 16], ..this },
                Transcript { agent_nonce: [4; 16], ..this },
            ] {
                assert!(!other.is_proven(side, &KEYS, &proof), "{other:?}");
            }
            let mut bent = proof;
            bent.0[31] ^= 1;
            assert!(!this.is_proven(side, &KEYS, &bent));
        }
    }

    #[test]
    fn an_address_is_the_same_in_both_its_forms() {
        let mapped = Transcript { coordinator: "::ffff:127.0.0.1".parse().unwrap(), ..transcript() };
        let proof = transcript().prove(Side::Agent, &KEYS);
        assert!(mapped.is_proven(Side::Agent, &KEYS, &proof));
    }
}
