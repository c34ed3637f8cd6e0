//! A session in a project's database.

mod describe;
mod end;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fallible_iterator::FallibleIterator as _;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::{DataRowBody, Message};
use postgres_protocol::message::frontend::{self, BindError};
use tokio::time::timeout;

use super::cancel::CancelKey;
use super::error::{DatabaseError, Failure, violation};
use super::output::Output;
use super::parameter::Parameter;
use super::refusal::COPY;
use super::statement::Statement;
use super::types::{Encoded, Type, Types, encode, write_value};
use super::wire::Wire;
use super::{socket, startup};
use crate::database::server::{Address, Credentials};
use crate::memory::OwnerMemory;

/// The longest time of a login.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(8);

/// A session. A call that fails with [`Failure::Fatal`] or [`Failure::Broken`] leaves it unusable.
pub struct Connection {
    wire: Wire,
    address: Arc<Address>,
    key: Option<CancelKey>,
    types: Types,
    /// Whether the session is in a transaction, as the server reported last.
    in_transaction: bool,
    /// Whether a `BEGIN` was sent whose response must be read before that of the next statement.
    begins: bool,
    /// Whether the server answered a statement of the current call.
    has_begun: bool,
}

impl Connection {
    /// Opens a session.
    ///
    /// # Errors
    /// Returns [`Failure::Server`] if the server refuses the login.
    pub async fn open(credentials: &Credentials, memory: OwnerMemory) -> Result<Self, Failure> {
        let open = async {
            let mut wire = Wire::new(socket::open(&credentials.address).await?, memory);
            let key = startup::log_in(&mut wire, credentials).await?;
            let address = Arc::clone(&credentials.address);
            Ok(Self {
                wire,
                address,
                key,
                types: Types::default(),
                in_transaction: false,
                begins: false,
                has_begun: false,
            })
        };
        timeout(LOGIN_TIMEOUT, open).await.unwrap_or_else(|_| Err(violation("the login timed out")))
    }

    /// Returns whether an idle connection can be used.
    pub fn is_open(&mut self) -> bool {
        self.wire.is_quiet()
    }

    /// Sets the memory for the large rows of the next call.
    pub fn set_memory(&mut self, memory: OwnerMemory) {
        self.wire.memory = memory;
    }

    /// Begins a transaction. The `BEGIN` is sent together with the next statement.
    pub fn begin(&mut self) -> Result<(), Failure> {
        self.begins = true;
        Ok(frontend::query("BEGIN", &mut self.wire.outgoing)?)
    }

    /// Commits a transaction.
    pub async fn commit(&mut self) -> Result<(), Failure> {
        frontend::sync(&mut self.wire.outgoing);
        frontend::query("COMMIT", &mut self.wire.outgoing)?;
        self.wire.send().await?;
        self.read_until_ready().await?;
        self.finish_query("COMMIT").await
    }

    /// Ends the implicit transaction of a statement, or the transaction of a failed call.
    pub async fn sync(&mut self) -> Result<(), Failure> {
        frontend::sync(&mut self.wire.outgoing);
        self.wire.send().await?;
        self.read_until_ready().await
    }

    /// Executes a statement, and writes its result. Does not commit.
    pub async fn execute(&mut self, statement: &Statement<'_>, output: &mut Output) -> Result<(), Failure> {
        let description = self.describe(&statement.text).await?;
        if description.parameters.len() != statement.params.len() {
            let (expected, given) = (description.parameters.len(), statement.params.len());
            let message = format!("The number of parameters is {given}, but the statement has {expected}.");
            return Err(DatabaseError::InvalidArgument(message).into());
        }
        let (parameters, columns) = self.resolve(statement, description).await?;
        self.bind(&statement.params, &parameters)?;
        frontend::execute("", 0, &mut self.wire.outgoing)?;
        frontend::flush(&mut self.wire.outgoing);
        self.wire.send().await?;
        self.expect_bind().await?;
        output.begin_result(&fields(&columns))?;
        let row_count = self.write_rows(&columns, output).await?;
        output.end_result(row_count).await
    }

    fn bind(&mut self, parameters: &[Parameter<'_>], types: &[Type]) -> Result<(), Failure> {
        let encoded = parameters.iter().zip(types).zip(1..);
        let encoded = encoded.map(|((parameter, expected), number)| encode(parameter, expected, number));
        let encoded: Vec<Encoded<'_>> = encoded.collect::<Result<_, DatabaseError>>()?;
        let formats = encoded.iter().map(|parameter| i16::from(parameter.is_binary));
        let bound = frontend::bind(
            "",
            "",
            formats,
            &encoded,
            |parameter, buffer| {
                Ok(parameter.value.as_ref().map_or(IsNull::Yes, |value| {
                    buffer.extend_from_slice(value);
                    IsNull::No
                }))
            },
            [0],
            &mut self.wire.outgoing,
        );
        bound.map_err(|error| match error {
            BindError::Serialization(error) => Failure::Broken(error),
            BindError::Conversion(_) => violation("a parameter was not written"),
        })
    }

    async fn expect_bind(&mut self) -> Result<(), Failure> {
        match self.wire.next().await? {
            Message::BindComplete => Ok(()),
            _ => Err(violation("the parameters were not bound")),
        }
    }

    /// Writes the rows, and returns the number of rows that the statement returned or changed.
    async fn write_rows(&mut self, columns: &[(String, Type)], output: &mut Output) -> Result<u64, Failure> {
        let mut returned = 0;
        loop {
            match self.wire.next().await? {
                Message::DataRow(row) => {
                    write_row(&row, columns, output).await?;
                    returned += 1;
                }
                Message::CommandComplete(complete) => return Ok(row_count(complete.tag()?).unwrap_or(returned)),
                Message::EmptyQueryResponse => return Ok(0),
                // The session now waits for COPY data, so it cannot be used again. `refusal` should have refused the
                // statement.
                Message::CopyInResponse(_) | Message::CopyOutResponse(_) => return Err(Failure::Fatal(COPY)),
                _ => return Err(violation("unexpected message in a result")),
            }
        }
    }

    /// Reads the response to a command in the simple protocol. The response must be complete, and have this command
    /// tag.
    async fn finish_query(&mut self, tag: &str) -> Result<(), Failure> {
        let result = match self.wire.next().await {
            Ok(Message::CommandComplete(complete)) if complete.tag()? == tag => Ok(()),
            Ok(Message::CommandComplete(_)) => Err(violation("a command had another effect")),
            Ok(_) => return Err(violation("unexpected message in a command")),
            Err(failure) => Err(failure),
        };
        if matches!(result, Ok(()) | Err(Failure::Server(_))) {
            self.read_until_ready().await?;
        }
        result.map_err(|failure| match failure {
            // The command has ended, so the session can be used again.
            Failure::Server(error) if !error.is_fatal => Failure::Call(error.into()),
            other => other,
        })
    }

    /// Reads until the session waits for the next command. An error of the server is then an error of the commit.
    async fn read_until_ready(&mut self) -> Result<(), Failure> {
        let mut result = Ok(());
        loop {
            match self.wire.next().await {
                Ok(Message::ReadyForQuery(ready)) => {
                    self.in_transaction = ready.status() != b'I';
                    return result;
                }
                Ok(_) => {}
                Err(Failure::Server(error)) if !error.is_fatal => result = Err(Failure::Call(error.into())),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Returns whether the server answered a statement of the current call. Otherwise, it executed no statement of the
    /// call.
    pub const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns whether a transaction is open.
    pub const fn is_in_transaction(&self) -> bool {
        self.in_transaction
    }
}

fn fields(columns: &[(String, Type)]) -> Vec<[&str; 3]> {
    columns.iter().map(|(name, column)| [name.as_str(), &column.name, column.conversion()]).collect()
}

async fn write_row(row: &DataRowBody, columns: &[(String, Type)], output: &mut Output) -> Result<(), Failure> {
    output.begin_row()?;
    let values = values(row)?;
    if values.len() != columns.len() {
        return Err(violation("a row has other columns"));
    }
    for (index, (value, (_, column))) in values.into_iter().zip(columns).enumerate() {
        if index > 0 {
            output.push(b",")?;
        }
        write_value(output, column, value)?;
    }
    output.end_row().await
}

fn values(row: &DataRowBody) -> Result<Vec<Option<&[u8]>>, Failure> {
    let value = |range: Option<Range<usize>>| Ok(range.and_then(|range| row.buffer().get(range)));
    Ok(row.ranges().map(value).collect()?)
}

/// Returns the count of a command tag such as `INSERT 0 5`. Other tags, such as `SHOW`, have none.
fn row_count(tag: &str) -> Option<u64> {
    tag.rsplit(' ').next()?.parse().ok()
}
