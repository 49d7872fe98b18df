//! The private functions of this crate that the fuzz targets call. Built with `--cfg fuzzing` only.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::rendezvous::{Join, Reception};
use crate::{Answer, Challenge, FromAgent, FromRank, Hello, Ticket, ToAgent, ToRank};

/// Reads a line of the control connections as each message that it could be, and as a ticket.
pub fn control(line: &[u8]) {
    same::<ToRank>(line);
    same::<FromRank>(line);
    same::<ToAgent>(line);
    same::<FromAgent>(line);
    same::<Ticket>(line);
    same::<Join>(line);
    same::<Challenge>(line);
    same::<Hello>(line);
    same::<Answer>(line);
    same::<Reception>(line);
}

/// Checks that a message that can be read is the same after it is written and read again.
fn same<M: Serialize + DeserializeOwned>(line: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<M>(line) {
        let written = serde_json::to_vec(&message).expect("it has no map with other keys than strings");
        let again: M = serde_json::from_slice(&written).expect("it was just written");
        assert_eq!(serde_json::to_vec(&again).expect("as before"), written);
    }
}
