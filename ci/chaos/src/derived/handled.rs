//! The errors of a communicator's calls, as its error handler gets them and as the calls return them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use samite::{Comm, Error, ErrorHandler};

use crate::report::{Calls, Report};

/// Counts errors. The handler must be called once for each error that a call returns, except a cancel.
#[derive(Default)]
pub(super) struct Handled {
    raised: Arc<AtomicU64>,
    returned: u64,
}

impl Handled {
    /// Returns a handle whose errors are counted.
    pub(super) fn handle(&self, comm: &Comm) -> Comm {
        let raised = Arc::clone(&self.raised);
        comm.with_error_handler(ErrorHandler::call(move |_| {
            raised.fetch_add(1, Ordering::Relaxed);
        }))
    }

    /// Counts an error that a call has returned, and checks that the call may end with it.
    pub(super) fn returned(&mut self, error: &Error, report: &mut Report) {
        report.failed(error, Calls::All);
        self.returned += u64::from(!matches!(error, Error::Cancelled { .. }));
    }

    /// Checks that the handler was called as often as calls have returned errors.
    pub(super) fn check(&self, report: &mut Report, what: &str) {
        let raised = self.raised.load(Ordering::Relaxed);
        if raised != self.returned {
            let returned = self.returned;
            report.troubles.push(format!(
                "{what} returned {returned} errors, and its handler was called {raised} times"
            ));
        }
    }
}
