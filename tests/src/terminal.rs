//! A program in a pseudo-terminal: its screen, the keys that the test presses, and how it leaves the terminal.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, SlavePty, native_pty_system};
use tokio::sync::watch;

use crate::programs::{program, signal};
use crate::wait::TEST_TIMEOUT;

/// Keys, as the bytes that a terminal sends for them.
pub mod keys {
    /// Enter.
    pub const ENTER: &str = "\r";
    /// Escape.
    pub const ESCAPE: &str = "\x1b";
    /// The left arrow.
    pub const LEFT: &str = "\x1b[D";
    /// The right arrow.
    pub const RIGHT: &str = "\x1b[C";
    /// Home.
    pub const HOME: &str = "\x1b[H";
    /// End.
    pub const END: &str = "\x1b[F";
    /// Ctrl-C.
    pub const CTRL_C: &str = "\x03";
    /// Ctrl-U, which clears a line.
    pub const CTRL_U: &str = "\x15";
    /// Ctrl-Z.
    pub const CTRL_Z: &str = "\x1a";
    /// F12.
    pub const F12: &str = "\x1b[24~";
}

/// How many lines above the screen are kept.
const SCROLLBACK: usize = 1000;

/// The request for the cursor's position (DSR).
const CURSOR_POSITION_REQUEST: &[u8] = b"\x1b[6n";

/// The private mode of a synchronized update, during which a terminal shows nothing of it.
const SYNCHRONIZED_UPDATE: u16 = 2026;

/// The terminal emulator, with what it does not do itself.
type Emulator = vt100::Parser<Extras>;

#[derive(Debug, Default)]
struct Extras {
    /// What programs copied to the clipboard of the terminal (OSC 52), in base64.
    copied: Vec<u8>,
    /// Whether a frame is being drawn, which shows once it is complete.
    is_updating: bool,
}

impl vt100::Callbacks for Extras {
    fn copy_to_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8], encoded: &[u8]) {
        self.copied = encoded.to_vec();
    }

    fn unhandled_csi(
        &mut self,
        _: &mut vt100::Screen,
        _: Option<u8>,
        _: Option<u8>,
        params: &[&[u16]],
        c: char,
    ) {
        if params == [[SYNCHRONIZED_UPDATE]] {
            self.is_updating = c == 'h';
        }
    }
}

/// A terminal in which one program runs. The program is killed when it is dropped.
pub struct Terminal {
    master: Box<dyn MasterPty + Send>,
    /// Open until the program has exited and its modes were read.
    slave: Option<Box<dyn SlavePty + Send>>,
    keys: Arc<Mutex<Box<dyn Write + Send>>>,
    child: Option<Box<dyn Child + Send + Sync>>,
    process: u32,
    parser: Arc<Mutex<Emulator>>,
    drawn: watch::Receiver<u64>,
    modes: String,
    modes_at_exit: Option<String>,
}

/// How long other processes may keep the terminal of a program that has exited.
const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_secs(10);

impl Terminal {
    /// Runs the plugin in a terminal of 24 rows and 100 columns.
    pub fn run_plugin(kubeconfig: &Path, args: &[&str], env: &[(&str, &str)]) -> Self {
        let env = [&[("KUBECONFIG", kubeconfig.to_str().unwrap())], env].concat();
        Self::run(&program("kubectl-nm"), args, &env, 24, 100)
    }

    /// Runs `program` in a terminal of this size.
    pub fn run(program: &Path, args: &[&str], env: &[(&str, &str)], rows: u16, columns: u16) -> Self {
        let size = PtySize { rows, cols: columns, ..PtySize::default() };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(program);
        command.args(args);
        command.env("TERM", "xterm-256color");
        command.env("LC_ALL", "C.UTF-8");
        command.env_remove("NO_COLOR");
        // Not the configuration of whoever runs the tests.
        command.env("XDG_CONFIG_HOME", "/dev/null");
        for (name, value) in env {
            command.env(name, value);
        }
        let modes = modes(&*pair.master);
        let child = pair.slave.spawn_command(command).unwrap();
        let process = child.process_id().unwrap();
        let parser =
            Arc::new(Mutex::new(Emulator::new_with_callbacks(rows, columns, SCROLLBACK, Extras::default())));
        let keys = Arc::new(Mutex::new(pair.master.take_writer().unwrap()));
        let (draw, drawn) = watch::channel(0);
        let from = pair.master.try_clone_reader().unwrap();
        std::thread::spawn({
            let (parser, keys) = (parser.clone(), keys.clone());
            move || read(from, &parser, &keys, &draw)
        });
        Self {
            master: pair.master,
            slave: Some(pair.slave),
            keys,
            child: Some(child),
            process,
            parser,
            drawn,
            modes,
            modes_at_exit: None,
        }
    }

    /// Presses keys: text, or constants of [`keys`].
    pub fn press(&self, keys: &str) {
        let mut to = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        to.write_all(keys.as_bytes()).unwrap();
        to.flush().unwrap();
    }

    /// Resizes the terminal.
    pub fn resize(&self, rows: u16, columns: u16) {
        self.parser().screen_mut().set_size(rows, columns);
        self.master.resize(PtySize { rows, cols: columns, ..PtySize::default() }).unwrap();
    }

    /// Reports a smaller size, or the original one, to the program only. The emulator keeps its size, because it panics
    /// when a program writes to a column that no longer exists.
    pub fn report_size(&self, rows: u16, columns: u16) {
        self.master.resize(PtySize { rows, cols: columns, ..PtySize::default() }).unwrap();
    }

    /// Sends the program a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        signal(self.process, name);
    }

    /// The text on the screen.
    pub fn screen(&self) -> String {
        self.parser().screen().contents()
    }

    /// The text that was copied to the clipboard last.
    ///
    /// # Panics
    /// If it is not base64, as OSC 52 requires.
    pub fn copied(&self) -> String {
        let encoded = self.parser().callbacks().copied.clone();
        String::from_utf8(STANDARD.decode(encoded).expect("base64")).expect("text")
    }

    /// Reads the screen with its attributes, such as colors.
    pub fn read_screen<T>(&self, read: impl FnOnce(&vt100::Screen) -> T) -> T {
        read(self.parser().screen())
    }

    /// The text on the screen, once `condition` is true for the screen. A frame counts once it is complete.
    ///
    /// # Panics
    /// After [`TEST_TIMEOUT`], with the text on the screen.
    pub async fn until(&self, what: &str, condition: impl Fn(&vt100::Screen) -> bool) -> String {
        let mut drawn = self.drawn.clone();
        let search = async {
            loop {
                drawn.borrow_and_update();
                if let Some(screen) = self.complete_screen(&condition) {
                    return screen;
                }
                if drawn.changed().await.is_err() {
                    panic!("the terminal is closed before {what}:\n{}", self.screen());
                }
            }
        };
        match tokio::time::timeout(TEST_TIMEOUT, search).await {
            Ok(screen) => screen,
            Err(_) => panic!("waited {TEST_TIMEOUT:?} for {what}; on the screen:\n{}", self.screen()),
        }
    }

    /// The text on the screen, if that is complete and `condition` is true for it.
    fn complete_screen(&self, condition: impl Fn(&vt100::Screen) -> bool) -> Option<String> {
        let parser = self.parser();
        let is_found = !parser.callbacks().is_updating && condition(parser.screen());
        is_found.then(|| parser.screen().contents())
    }

    /// Waits until the dashboard is on the screen and shows live data.
    pub async fn until_live(&self) {
        let is_live =
            |screen: &vt100::Screen| screen.alternate_screen() && screen.contents().contains("live");
        self.until("a live dashboard", is_live).await;
    }

    /// Waits until a text is on the screen.
    pub async fn until_shown(&self, text: &str) -> String {
        self.until(text, |screen| screen.contents().contains(text)).await
    }

    /// Waits until the program exits and its last output has arrived, and returns its exit code.
    ///
    /// # Panics
    /// After [`TEST_TIMEOUT`], with the text on the screen.
    pub async fn exit_code(&mut self) -> u32 {
        let mut child = self.child.take().expect("the program has not exited before");
        let mut killer = child.clone_killer();
        let ended = tokio::task::spawn_blocking(move || child.wait());
        let ended = tokio::time::timeout(TEST_TIMEOUT, ended).await;
        let Ok(ended) = ended else {
            let _ = killer.kill();
            panic!("waited {TEST_TIMEOUT:?} for the program to exit; on the screen:\n{}", self.screen());
        };
        self.modes_at_exit = Some(modes(&*self.master));
        self.slave = None;
        let mut drawn = self.drawn.clone();
        let last_output = async { while drawn.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(LAST_OUTPUT_TIMEOUT, last_output).await;
        ended.unwrap().unwrap().exit_code()
    }

    /// The process id of the program.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// The modes of the terminal that the program has not restored: those at its exit, if it has exited.
    pub fn unrestored_modes(&self) -> Vec<String> {
        let parser = self.parser();
        let screen = parser.screen();
        let mut left = Vec::new();
        let mut check = |wrong: bool, what: &str| {
            if wrong {
                left.push(what.to_owned());
            }
        };
        check(screen.alternate_screen(), "the alternate screen");
        check(screen.hide_cursor(), "a hidden cursor");
        check(screen.bracketed_paste(), "bracketed paste");
        check(screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None, "mouse reports");
        let modes = self.modes_at_exit.clone().unwrap_or_else(|| modes(&*self.master));
        check(modes != self.modes, &format!("other modes: {modes} for {}", self.modes));
        left
    }

    fn parser(&self) -> std::sync::MutexGuard<'_, Emulator> {
        self.parser.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The flags of the line discipline, such as echo and canonical mode.
fn modes(master: &dyn MasterPty) -> String {
    master.get_termios().map_or_else(String::new, |modes| {
        format!("{:?} {:?} {:?}", modes.input_flags, modes.output_flags, modes.local_flags)
    })
}

/// Feeds the program's output to the emulator, and answers requests for the cursor's position.
fn read(
    mut from: Box<dyn Read + Send>,
    parser: &Mutex<Emulator>,
    keys: &Mutex<Box<dyn Write + Send>>,
    drawn: &watch::Sender<u64>,
) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count) = from.read(&mut bytes)
        && count > 0
    {
        let written = &bytes[..count];
        let mut parser = parser.lock().unwrap_or_else(PoisonError::into_inner);
        parser.process(written);
        let (row, column) = parser.screen().cursor_position();
        drop(parser);
        if written.windows(CURSOR_POSITION_REQUEST.len()).any(|part| part == CURSOR_POSITION_REQUEST) {
            let mut keys = keys.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = write!(keys, "\x1b[{};{}R", row + 1, column + 1);
            let _ = keys.flush();
        }
        drawn.send_modify(|count| *count += 1);
    }
}
