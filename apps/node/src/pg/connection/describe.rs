//! The types of statements.

use std::mem;

use fallible_iterator::FallibleIterator as _;
use postgres_protocol::Oid;
use postgres_protocol::message::backend::{Message, ParameterDescriptionBody, RowDescriptionBody};
use postgres_protocol::message::frontend;

use super::{Connection, values};
use crate::pg::error::{DatabaseError, Failure, violation};
use crate::pg::parameter::Parameter;
use crate::pg::statement::Statement;
use crate::pg::types::{LOOKUP, Scalar, Type, parse_row};

/// The types of a statement, as the server inferred them.
pub(super) struct Description {
    pub parameters: Vec<Oid>,
    columns: Vec<(String, Oid)>,
}

impl Connection {
    /// Parses a statement and returns its types.
    pub(super) async fn describe(&mut self, text: &str) -> Result<Description, Failure> {
        frontend::parse("", text, [], &mut self.wire.outgoing)?;
        frontend::describe(b'S', "", &mut self.wire.outgoing)?;
        frontend::flush(&mut self.wire.outgoing);
        self.wire.send().await?;
        if mem::take(&mut self.begins) {
            self.finish_query("BEGIN").await?;
        }
        let parsed = self.wire.next().await;
        self.has_begun |= match &parsed {
            Ok(_) => true,
            Err(Failure::Server(error)) => !error.is_fatal,
            Err(_) => false,
        };
        let Message::ParseComplete = parsed? else { return Err(violation("a statement was not parsed")) };
        let Message::ParameterDescription(parameters) = self.wire.next().await? else {
            return Err(violation("the parameters are missing"));
        };
        let columns = match self.wire.next().await? {
            Message::RowDescription(columns) => read_columns(&columns)?,
            Message::NoData => Vec::new(),
            _ => return Err(violation("the columns are missing")),
        };
        Ok(Description { parameters: read_parameters(&parameters)?, columns })
    }

    /// Returns the types of the parameters and of the columns. Looks up unknown types. A lookup replaces the parsed
    /// statement, so the statement is then parsed again.
    pub(super) async fn resolve(
        &mut self,
        statement: &Statement<'_>,
        description: Description,
    ) -> Result<(Vec<Type>, Vec<(String, Type)>), Failure> {
        let Description { parameters, columns } = description;
        let ids = || parameters.iter().chain(columns.iter().map(|(_, id)| id)).copied();
        let mut unknown: Vec<Oid> = ids().filter(|id| self.types.get(*id).is_none()).collect();
        if !unknown.is_empty() {
            unknown.sort_unstable();
            unknown.dedup();
            self.look_up(&unknown).await?;
            let again = self.describe(&statement.text).await?;
            if again.parameters != parameters || again.columns != columns {
                return Err(DatabaseError::Statement {
                    code: "0A000".to_owned(),
                    message: "The types of the statement changed while it was prepared. Try again.".to_owned(),
                }
                .into());
            }
        }
        let text = || Type { name: "unknown".into(), scalar: Scalar::Text, array: None };
        let find = |id: Oid| self.types.get(id).unwrap_or_else(text);
        let parameters = parameters.into_iter().map(find).collect();
        Ok((parameters, columns.into_iter().map(|(name, id)| (name, find(id))).collect()))
    }

    async fn look_up(&mut self, ids: &[Oid]) -> Result<(), Failure> {
        self.describe(LOOKUP).await?;
        let ids = ids.iter().map(|id| Parameter::Number(id.to_string().into())).collect();
        let ids_type = Type { name: "oid[]".into(), scalar: Scalar::Text, array: Some(b',') };
        self.bind(&[Parameter::Array(ids)], &[ids_type])?;
        frontend::execute("", 0, &mut self.wire.outgoing)?;
        frontend::flush(&mut self.wire.outgoing);
        self.wire.send().await?;
        self.expect_bind().await?;
        let mut found = Vec::new();
        loop {
            match self.wire.next().await? {
                Message::DataRow(row) => {
                    let values = values(&row)?;
                    found.push(parse_row(&values).ok_or_else(|| violation("a type is malformed"))?);
                }
                Message::CommandComplete(_) => break,
                _ => return Err(violation("unexpected message in the types")),
            }
        }
        self.types.extend(found);
        Ok(())
    }
}

fn read_parameters(parameters: &ParameterDescriptionBody) -> Result<Vec<Oid>, Failure> {
    Ok(parameters.parameters().collect()?)
}

fn read_columns(columns: &RowDescriptionBody) -> Result<Vec<(String, Oid)>, Failure> {
    Ok(columns.fields().map(|field| Ok((field.name().to_owned(), field.type_oid()))).collect()?)
}
