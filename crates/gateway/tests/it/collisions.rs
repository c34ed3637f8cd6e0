//! Collisions between routes.

use gateway::Problem;
use gateway::authority::Open;
use gateway::http::{Area, Body, Json, NoContent, Path, PathParameter, Router, Routes};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use validator::Validate;

macro_rules! parameters {
    ($($name:ident: $description:literal;)+) => { $(
        struct $name;

        impl std::str::FromStr for $name {
            type Err = ();

            fn from_str(_: &str) -> Result<Self, ()> {
                Ok(Self)
            }
        }

        impl PathParameter for $name {
            const DESCRIPTION: &'static str = $description;

            fn schema() -> Value {
                json!({ "type": "string" })
            }
        }
    )+ };
}

parameters! {
    Rrset: "The name of an rrset.";
    Secret: "The name of a secret.";
}

mod cars {
    use super::*;

    #[derive(Serialize, ToSchema)]
    pub struct Tank {
        pub litres: u32,
    }
}

mod armies {
    use super::*;

    #[derive(Serialize, ToSchema)]
    pub struct Tank {
        pub crew: u32,
    }
}

async fn nothing(_: Open) -> Result<NoContent, Problem> {
    Ok(NoContent)
}

async fn car(_: Open) -> Result<Json<cars::Tank>, Problem> {
    Ok(Json(cars::Tank { litres: 50 }))
}

async fn army(_: Open) -> Result<Json<armies::Tank>, Problem> {
    Ok(Json(armies::Tank { crew: 4 }))
}

async fn of_rrset(_: Open, _: Path<Rrset>) -> Result<NoContent, Problem> {
    Ok(NoContent)
}

async fn of_secret(_: Open, _: Path<Secret>) -> Result<NoContent, Problem> {
    Ok(NoContent)
}

#[derive(Deserialize, ToSchema)]
struct Wheel {
    #[expect(dead_code, reason = "only the schema is tested")]
    inches: u32,
}

#[derive(Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the schema is tested")]
struct NewCar {
    spare: Option<Wheel>,
    wheels: Vec<Wheel>,
    radio: Option<Value>,
}

async fn build(_: Open, _: Body<NewCar>) -> Result<NoContent, Problem> {
    Ok(NoContent)
}

/// Returns the collisions of the routes that `register` adds to one area.
fn collisions(register: impl FnOnce(&mut Area)) -> Vec<String> {
    let mut routes = Routes::default();
    register(&mut routes.area("test", "Routes of a test."));
    Router::of(&[&routes]).err().map(|collisions| collisions.0).unwrap_or_default()
}

#[test]
fn routes_without_collisions_are_accepted() {
    let found = collisions(|area| {
        area.get("nothing", "/nothing", nothing);
        area.post("make", "/nothing", nothing);
        area.get("car", "/car", car);
        area.get("rrset", "/rrsets/{rrset}", of_rrset);
        area.delete("rrset_delete", "/rrsets/{rrset}", of_rrset);
        area.get("secret", "/secrets/{secret}", of_secret);
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn duplicate_schema_names_are_rejected() {
    let found = collisions(|area| {
        area.get("car", "/car", car);
        area.get("army", "/army", army);
    });
    assert_eq!(found, ["GET /car and GET /army have different schemas named Tank"]);
}

#[test]
fn duplicate_operation_ids_are_rejected() {
    let found = collisions(|area| {
        area.get("nothing", "/a", nothing);
        area.get("nothing", "/b", nothing);
    });
    assert_eq!(found, ["GET /a and GET /b share the id test.nothing"]);
}

#[test]
fn duplicate_routes_are_rejected() {
    let found = collisions(|area| {
        area.get("one", "/a", nothing);
        area.get("other", "/a", nothing);
    });
    assert_eq!(found, ["test.one and test.other share the route GET /a"]);
}

#[test]
fn path_parameter_with_two_meanings_is_rejected() {
    let found = collisions(|area| {
        area.get("rrset", "/rrsets/{name}", of_rrset);
        area.get("secret", "/secrets/{name}", of_secret);
    });
    assert_eq!(found, ["{name} has different meanings in GET /rrsets/{name} and GET /secrets/{name}"]);
}

#[test]
fn paths_that_differ_only_in_parameter_names_are_rejected() {
    let found = collisions(|area| {
        area.get("rrset", "/things/{rrset}", of_rrset);
        area.delete("secret", "/things/{secret}", of_secret);
    });
    assert_eq!(found, ["/things/{rrset} and /things/{secret} differ only in the names of their parameters"]);
}

#[test]
fn undescribed_path_parameter_is_rejected() {
    let found = collisions(|area| {
        area.get("rrset", "/rrsets/{rrset}/{version}", of_rrset);
    });
    assert_eq!(found, ["GET /rrsets/{rrset}/{version} does not describe {version}"]);
}

#[test]
fn argument_without_a_path_parameter_is_rejected() {
    let found = collisions(|area| {
        area.get("rrset", "/rrsets", of_rrset);
    });
    assert_eq!(found, ["GET /rrsets describes more parameters than its path has"]);
}

#[test]
fn body_that_accepts_unknown_fields_is_rejected() {
    let found = collisions(|area| {
        area.post("build", "/cars", build);
    });
    assert_eq!(found, ["POST /cars accepts any value in NewCar", "POST /cars accepts unknown fields in Wheel"]);
}

#[test]
fn area_with_two_descriptions_is_rejected() {
    let mut routes = Routes::default();
    routes.area("test", "One thing.");
    routes.area("test", "Another thing.");
    let found = Router::of(&[&routes]).err().unwrap();
    assert_eq!(found.to_string(), "the routes are invalid: the area test has two descriptions");
}

#[test]
fn collisions_between_route_sets_are_rejected() {
    let part = || {
        let mut routes = Routes::default();
        routes.area("test", "Routes of a test.").get("nothing", "/nothing", nothing);
        routes
    };
    assert_eq!(Router::of(&[&part(), &part()]).err().unwrap().0.len(), 2);
}
