//! Tagged messages: eager and rendezvous protocols, requests and flow control over any port.
