//! Error handlers: the reaction of a handle to the errors of its calls (MPI 4.1, section 9.3).

use std::cell::Cell;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use samite_coll::Table;
use samite_p2p::SendBuffer;

use super::Comm;
use crate::error::Error;
use crate::request::{ExchangeFailed, Failed};

/// The reaction of a handle to the errors of its calls: see [`Comm::with_error_handler`].
///
/// A handler is called by the call that reports the error, before the call returns it. It is called once for each
/// reported error, in the thread of the call, and not while that thread holds a lock of Samite.
///
/// ```
/// # samite::local(1, |world| {
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// use samite::{ErrorHandler, Rank};
///
/// static ERRORS: AtomicU32 = AtomicU32::new(0);
/// let comm = world.comm().with_error_handler(ErrorHandler::call(|raised| {
///     ERRORS.fetch_add(1, Ordering::Relaxed);
///     println!("{raised}");
/// }));
/// // Prints: `send` failed at rank 0 of 1: there is no rank 5 in a communicator of 1…
/// assert!(comm.send(&[1u8], Rank(5), 7).is_err());
/// assert_eq!(ERRORS.load(Ordering::Relaxed), 1);
/// # });
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum ErrorHandler {
    /// No reaction: the call returns the error (`MPI_ERRORS_RETURN`).
    #[default]
    Return,
    /// The call panics, with a message that names the call and the error. In a thread that is panicking already the
    /// call returns the error, because a second panic would abort the process.
    Panic,
    /// The call writes the error to standard error, and ends the process with exit code 1 (`MPI_ERRORS_ABORT`). Under
    /// `samite run` that ends the job, unless its option `--on-failure` says otherwise. With [`local`](crate::local) it
    /// ends all ranks.
    Abort,
    /// The call calls a function, then returns the error: see [`ErrorHandler::call`].
    Call(Arc<dyn Fn(&Raised<'_>) + Send + Sync>),
}

/// An error that a call is about to return, as the function of an [`ErrorHandler`] gets it. Its text names the call,
/// the rank, the communicator if it has a [name](Comm::set_name), and the error.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Raised<'a> {
    /// The call that reports the error: `send`, `Request::wait`…
    pub call: &'a str,
    /// The error, with ranks of the communicator.
    pub error: &'a Error,
    /// A handle of the communicator, with the time-out and the cancel of the handle whose call failed, and with the
    /// handler [`ErrorHandler::Return`].
    pub comm: &'a Comm,
}

impl ErrorHandler {
    /// Returns the handler that calls `function`. Several threads may call it at the same time.
    ///
    /// The function may make any call of Samite, also on the same communicator. While it runs, the calls that it makes
    /// in its thread call no handler function; functions of [`Request::on_end`](crate::Request::on_end) that run there,
    /// because it [drives](crate::Driver::drive), are no such calls. A handle with [`Panic`](Self::Panic) or
    /// [`Abort`](Self::Abort) panics or ends the process as always. If the function panics, the panic continues in the
    /// call that reported the error.
    #[must_use]
    pub fn call(function: impl Fn(&Raised<'_>) + Send + Sync + 'static) -> Self {
        Self::Call(Arc::new(function))
    }

    fn handle(&self, raised: &Raised<'_>) {
        match self {
            Self::Return => {}
            Self::Panic if std::thread::panicking() => {}
            Self::Panic => panic!("{raised}"),
            Self::Abort => {
                // If standard error is closed, the process ends without the message.
                let _ = writeln!(io::stderr(), "samite: {raised}");
                std::process::exit(1)
            }
            Self::Call(function) => Running::run(|| function(raised)),
        }
    }
}

impl fmt::Debug for ErrorHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Return => "Return",
            Self::Panic => "Panic",
            Self::Abort => "Abort",
            Self::Call(_) => "Call(..)",
        })
    }
}

impl fmt::Display for Raised<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, error, comm } = self;
        write!(f, "`{call}` failed at rank {} of {}", comm.rank(), comm.size())?;
        if let Some(name) = comm.name() {
            write!(f, " in communicator `{name}`")?;
        }
        write!(f, ": {error}")
    }
}

thread_local! {
    /// True while this thread runs the function of a handler.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// A value that exists while this thread runs the function of a handler.
struct Running;

impl Running {
    /// Calls a function, unless this thread runs the function of a handler already. Otherwise a function whose own
    /// calls fail would recurse without end.
    fn run(function: impl FnOnce()) {
        if !RUNNING.replace(true) {
            let _running = Self;
            function();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(false);
    }
}

/// Calls a function that is not part of a handler's function, although this thread may run one: a handler's function
/// may drive, and so call the functions of other requests. These report their errors as always.
pub(crate) fn outside_handler(call: impl FnOnce()) {
    struct Inside(bool);
    impl Drop for Inside {
        fn drop(&mut self) {
            RUNNING.set(self.0);
        }
    }
    let _inside = Inside(RUNNING.replace(false));
    call();
}

/// The properties of a handle that few programs set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    /// The buffer of buffered sends that [`Comm::with_buffer`] has made. `None`: the sends use the lane's buffer.
    pub(super) buffer: Option<Arc<SendBuffer>>,
    handler: ErrorHandler,
    /// The table of collective calls, if the handle has a selection of algorithms.
    pub(super) table: Option<Arc<Table>>,
}

/// The error of a call's result.
pub(crate) trait HasError {
    fn error(&self) -> &Error;
}

impl HasError for Error {
    fn error(&self) -> &Error {
        self
    }
}

impl<B> HasError for Failed<B> {
    fn error(&self) -> &Error {
        &self.error
    }
}

impl<S, R> HasError for ExchangeFailed<S, R> {
    fn error(&self) -> &Error {
        &self.error
    }
}

impl Comm {
    /// Returns the same communicator with a handler for the errors of its calls (`MPI_Comm_set_errhandler`; MPI 4.1,
    /// section 9.3). In MPI a handler belongs to a communicator, here to a handle: other handles keep their error
    /// handlers.
    ///
    /// The handler applies to all calls on this handle that return an [`Error`], and to all calls on the objects that
    /// these calls return: requests, sets, scopes, persistent and partitioned operations, claimed messages, futures,
    /// creations. Clones of the handle, its handles on other [lanes](Self::lane), and the communicators that are
    /// created on it have the handler too. An error of a request is reported by the call that returns it, such as a
    /// wait, a test, or the poll of a future. [`Request::on_end`](crate::Request::on_end) reports the error in the
    /// thread that calls the function, just before the function is called.
    ///
    /// An expired time-out is an error like others. To look for messages with short time-outs, use a handle without a
    /// handler. Two errors call no handler: [`Error::Cancelled`], since a cancelled operation has ended as the program
    /// asked (MPI 4.1, section 3.8.4), and [`Error::Forked`], since a child of fork(2) is no rank. An error that the
    /// body of a [`scope`](Self::scope) returns is not reported again.
    ///
    /// ```
    /// # samite::local(2, |world| {
    /// use samite::{ErrorHandler, Rank};
    ///
    /// // Each error on this handle ends the rank, so results need no further check.
    /// let comm = world.comm().with_error_handler(ErrorHandler::Panic);
    /// let halves = comm.split(Some(comm.rank().0 % 2), 0).expect("it would have panicked");
    /// assert!(matches!(halves.expect("it has a colour").error_handler(), ErrorHandler::Panic));
    /// # });
    /// ```
    #[must_use]
    pub fn with_error_handler(&self, handler: ErrorHandler) -> Self {
        self.with_extras(|extras| extras.handler = handler)
    }

    /// Returns the handler of this handle (`MPI_Comm_get_errhandler`).
    #[must_use]
    pub fn error_handler(&self) -> ErrorHandler {
        self.extras.as_ref().map_or(ErrorHandler::Return, |extras| extras.handler.clone())
    }

    /// Calls the handler of this handle for an error of the program's (`MPI_Comm_call_errhandler`): for a library that
    /// reports its errors as Samite does. `call` is the name of the library's call.
    ///
    /// ```should_panic
    /// # samite::local(1, |world| {
    /// use samite::{Error, ErrorHandler};
    ///
    /// let comm = world.comm().with_error_handler(ErrorHandler::Panic);
    /// comm.call_error_handler("solve", &Error::Exhausted { what: "iterations", hint: "raise the limit".into() });
    /// # });
    /// ```
    pub fn call_error_handler(&self, call: &str, error: &Error) {
        self.raise(call, error);
    }

    pub(super) fn with_extras(&self, change: impl FnOnce(&mut Extras)) -> Self {
        let mut extras = self.extras.as_deref().cloned().unwrap_or_default();
        change(&mut extras);
        Self { extras: Some(Arc::new(extras)), ..self.clone() }
    }

    /// Returns the same handle without the error handler. A call that consists of several operations starts them on
    /// such a handle, and reports their errors itself.
    pub(crate) fn quiet(&self) -> Self {
        match &self.extras {
            None => self.clone(),
            Some(_) => self.with_extras(|extras| extras.handler = ErrorHandler::Return),
        }
    }

    /// Returns `result`. If it is an error other than [`Error::Cancelled`] or [`Error::Forked`], calls the handler
    /// first. Each public call does this once.
    #[inline(always)]
    pub(crate) fn handle_result<R, E: HasError>(
        &self,
        call: &'static str,
        result: Result<R, E>,
    ) -> Result<R, E> {
        if let Err(failed) = &result {
            self.raise(call, failed.error());
        }
        result
    }

    /// Calls the handler, then returns the error of a call.
    #[cold]
    #[inline(never)]
    pub(crate) fn handle_error(&self, call: &'static str, error: Error) -> Error {
        self.raise(call, &error);
        error
    }

    /// Translates the ranks in the error of a call to ranks of this communicator, calls the handler, and returns the
    /// error.
    #[cold]
    #[inline(never)]
    pub(crate) fn handle_world_error(&self, call: &'static str, error: Error) -> Error {
        self.handle_error(call, self.local_error(error))
    }

    /// Calls the handler for an error that a call is about to return, unless the error is [`Error::Cancelled`] or
    /// [`Error::Forked`].
    #[cold]
    #[inline(never)]
    pub(crate) fn raise(&self, call: &str, error: &Error) {
        let Some(extras) = &self.extras else { return };
        match (&extras.handler, error) {
            (ErrorHandler::Return, _) | (_, Error::Cancelled { .. } | Error::Forked) => {}
            (handler, error) => handler.handle(&Raised { call, error, comm: &self.quiet() }),
        }
    }
}
