//! What the fuzz targets reach of this crate's insides. Built with `--cfg fuzzing` only.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bootstrap::{Entry, Join, Reception, read_pmi};
use crate::control::{Answer, Challenge, FromAgent, FromRank, Hello, Ticket, ToAgent, ToRank};

/// A line of the control connections, as each of the messages that it could be, or a ticket; what a launcher of
/// another kind says, and what a rank has published there.
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
    read_pmi(line);
    if let Ok(entry) = str::from_utf8(line).unwrap_or_default().parse::<Entry>() {
        assert_eq!(entry.to_string().parse::<Entry>().expect("it was just written"), entry);
    }
}

/// What can be read is written so that it is read as the same.
fn same<M: Serialize + DeserializeOwned>(line: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<M>(line) {
        let written = serde_json::to_vec(&message).expect("it has no map with other keys than strings");
        let again: M = serde_json::from_slice(&written).expect("it was just written");
        assert_eq!(serde_json::to_vec(&again).expect("as before"), written);
    }
}
