//! The committed JSON Schemas accept what the decoders accept: no more, and no less.

use agentfleet_schema::config::item_type;
use agentfleet_schema::json_schema::{self, DECODERS, Decoder};
use jsonschema::Validator;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn committed(name: &str) -> Value {
    let path = folder().join(format!("json-schema/{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Every object type with a decoder, each with the schema that a message embeds it by.
fn types() -> Vec<(String, Decoder, Value)> {
    let mut types = Vec::new();
    for (name, _) in json_schema::messages()
        .into_iter()
        .chain(json_schema::config_items())
    {
        let schema = committed(name);
        let decoder = |name: &str| DECODERS.iter().find(|d| (d.name)() == name).copied();
        let title = schema["title"].as_str().unwrap().to_owned();
        types.push((title.clone(), decoder(&title).unwrap(), schema.clone()));
        for name in schema["$defs"]
            .as_object()
            .into_iter()
            .flat_map(|defs| defs.keys())
        {
            if let Some(decoder) = decoder(name) {
                let mut reference = json!({"$ref": format!("#/$defs/{name}")});
                reference["$defs"] = schema["$defs"].clone();
                types.push((name.clone(), decoder, reference));
            } else {
                let definition = &schema["$defs"][name];
                assert!(
                    definition.get("properties").is_none(),
                    "object type `{name}` has no decoder in `json_schema::DECODERS`, so nobody \
                     asks it what it forgives"
                );
            }
        }
    }
    types
}

fn properties(name: &str, schema: &Value) -> Vec<String> {
    let own = if schema.get("$ref").is_some() {
        &schema["$defs"][name]
    } else {
        schema
    };
    own["properties"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect()
}

#[test]
fn null_and_wrong_types_are_accepted_exactly_where_the_decoder_takes_them() {
    let mut nulls = 0;
    for (name, decoder, schema) in types() {
        let validator = jsonschema::validator_for(&schema).unwrap();
        for property in properties(&name, &schema) {
            for value in [
                Value::Null,
                json!("text"),
                json!(3),
                json!(true),
                json!([]),
                json!({}),
                json!(-1),
            ] {
                let mut instance = (decoder.default)();
                instance[&property] = value.clone();
                let validates = validator.is_valid(&instance);
                let decodes = (decoder.accepts)(instance);
                if value.is_array() && decodes && !validates {
                    // Serde reads an object written as an array of its fields; nobody writes that.
                    continue;
                }
                assert_eq!(
                    validates, decodes,
                    "`{name}.{property}` = {value}: left is the schema, right the decoder"
                );
                nulls += usize::from(value.is_null() && decodes);
            }
        }
    }
    assert!(
        nulls > 50,
        "only {nulls} properties take null: the probe does not work"
    );
}

fn check_fixtures(kind: &str, name: &str, validator: &Validator) {
    let fixtures = folder().join(format!("fixtures/{kind}/{name}"));
    let mut seen = 0;
    for file in std::fs::read_dir(fixtures).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let instance: Value = serde_json::from_str(&text).unwrap();
        if let Err(error) = validator.validate(&instance) {
            panic!("{}: {error} at {}", path.display(), error.instance_path());
        }
        seen += 1;
    }
    assert!(seen > 0);
}

#[test]
fn every_fixture_validates() {
    for (name, _) in json_schema::messages() {
        check_fixtures(
            "messages",
            name,
            &jsonschema::validator_for(&committed(name)).unwrap(),
        );
    }
    for (name, _) in json_schema::config_items() {
        check_fixtures(
            "config",
            name,
            &jsonschema::validator_for(&committed(name)).unwrap(),
        );
    }
}

#[test]
fn schemas_are_valid_and_every_property_of_ours_can_be_understood() {
    for (name, _) in json_schema::messages()
        .into_iter()
        .chain(json_schema::config_items())
    {
        let schema = committed(name);
        jsonschema::meta::validate(&schema).unwrap();
        assert!(
            schema["description"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{name}"
        );
    }
    assert_eq!(json_schema::config_items().len(), item_type::ALL.len());
}

#[test]
fn both_names_of_a_field_at_once_are_refused() {
    for (owner, alias, property) in json_schema::ALIASES {
        let (_, decoder, schema) = types()
            .into_iter()
            .find(|(name, ..)| name == owner)
            .unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let mut instance = (decoder.default)();
        let value = instance.as_object_mut().unwrap().remove(property).unwrap();
        for (names, valid) in [
            (vec![alias], true),
            (vec![property], true),
            (vec![alias, property], false),
        ] {
            let mut instance = instance.clone();
            for name in names {
                instance[name] = value.clone();
            }
            assert_eq!(validator.is_valid(&instance), valid, "{owner}: {instance}");
            assert_eq!((decoder.accepts)(instance), valid, "{owner}.{alias}");
        }
    }
}
