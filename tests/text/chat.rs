//! Chat templates.

use serde_json::{Map, Value as Json, json};
use verbatim::gguf::{Metadata, Value};
use verbatim::text::{ChatTemplate, Specials, Tokenizer};

use super::{cases, data, pocket};

fn template(source: &str) -> ChatTemplate {
    let mut metadata = Metadata::default();
    metadata.insert("tokenizer.chat_template", Value::String(source.into()));
    ChatTemplate::from_metadata(&metadata).unwrap().unwrap()
}

fn render(source: &str) -> verbatim::Result<String> {
    template(source).render(&json!([{"role": "user", "content": "x"}]), &Map::new())
}

/// Renders every case and compares bytes; where an error is expected, there must be one that ends with its words.
fn check(cases: &[Json]) {
    let qwen = data("qwen3.5-chat.jinja");
    for case in cases {
        let name = &case["name"];
        let template = template(case["template"].as_str().unwrap_or(&qwen));
        let rendered = template.render(&case["messages"], case["options"].as_object().unwrap());
        match case["rendered"].as_str() {
            Some(text) => assert_eq!(rendered.as_deref(), Ok(text), "{name}"),
            None => {
                let error = rendered.expect_err(&name.to_string()).to_string();
                let words = case["error"].as_str().unwrap();
                // Where `transformers` or Jinja speaks, and not the template, the words are ours.
                if !words.starts_with("ValueError") && !words.contains("undefined") {
                    let words = words.trim_start_matches("TemplateError: ");
                    assert_eq!(error, format!("tokenizer.chat_template: {words}"), "{name}");
                }
            }
        }
    }
}

#[test]
fn the_supplied_conversations_are_rendered_byte_for_byte() {
    let cases = cases("qwen3.5-chat-cases.json");
    assert_eq!(cases.len(), 17);
    check(&cases);
}

#[test]
fn further_conversations_are_rendered_as_jinja2_does() {
    check(&cases("more-chats.json"));
}

#[test]
fn arguments_that_come_as_json_text_are_parsed() {
    let call = |arguments: Json| {
        json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "",
            "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": arguments}}]}])
    };
    let qwen = template(&data("qwen3.5-chat.jinja"));
    let mapping = json!({"z": 1, "a": [true, {"b": "é"}], "t": "text"});
    let expected = qwen.render(&call(mapping.clone()), &Map::new()).unwrap();
    assert_eq!(qwen.render(&call(json!(mapping.to_string())), &Map::new()).unwrap(), expected);
    for bad in [json!("{\"a\": "), json!("[1]"), json!("3"), json!(3)] {
        assert!(qwen.render(&call(bad.clone()), &Map::new()).is_err(), "{bad}");
    }
    assert_eq!(render("{% for k, v in nothing | items %}{{ k }}{% endfor %}"), Ok(String::new()));
    let method = template("{% for k, v in messages[0].a.items() %}{{ k }}={{ v }};{% endfor %}");
    let messages = json!([{"a": "{\"y\": 1, \"b\": null}"}]);
    assert_eq!(method.render(&messages, &Map::new()).unwrap(), "y=1;b=None;");
}

#[test]
fn the_embedded_model_has_a_template_and_knows_its_tokens() {
    let mut metadata = pocket();
    let chat = ChatTemplate::from_metadata(&metadata).unwrap().unwrap();
    let options = Map::from_iter([("add_generation_prompt".to_owned(), json!(true))]);
    let rendered = chat.render(&json!([{"role": "user", "content": "Hi"}]), &options).unwrap();
    assert_eq!(rendered, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
    metadata.insert("tokenizer.chat_template", Value::String("{{ eos_token }}{{ bos_token }}".into()));
    let chat = ChatTemplate::from_metadata(&metadata).unwrap().unwrap();
    assert_eq!(chat.render(&json!([{}]), &Map::new()).unwrap(), "<|im_end|>");
}

#[test]
fn a_file_without_a_template_has_none() {
    assert!(ChatTemplate::from_metadata(&Metadata::default()).unwrap().is_none());
}

#[test]
fn a_broken_template_is_an_error_that_names_the_key_and_the_line() {
    for source in ["a\n{% if x %}", "\n{{ x", "\n{% frobnicate %}", "\n{{ x | nofilter }}"] {
        let mut metadata = Metadata::default();
        metadata.insert("tokenizer.chat_template", Value::String(source.into()));
        let error = match ChatTemplate::from_metadata(&metadata) {
            Ok(chat) => chat.unwrap().render(&json!([{}]), &Map::new()).unwrap_err(),
            Err(error) => error,
        };
        let error = error.to_string();
        assert!(error.starts_with("tokenizer.chat_template: line 2: "), "{error}");
    }
    let mut metadata = Metadata::default();
    metadata.insert("tokenizer.chat_template", Value::U8(1));
    assert!(ChatTemplate::from_metadata(&metadata).is_err());
}

#[test]
fn messages_must_be_a_list_with_something_in_it() {
    for messages in [json!([]), json!({}), json!(null), json!("x")] {
        let error = template("x").render(&messages, &Map::new()).unwrap_err().to_string();
        assert_eq!(error, "messages: expected a list of at least one message");
    }
}

#[test]
fn the_time_is_available() {
    let year = render("{{ strftime_now('%Y-%m-%d') }}").unwrap();
    assert_eq!(year.len(), 10, "{year}");
    assert!(year.as_str() > "2020-01-01", "{year}");
}

#[test]
fn a_hostile_template_ends_with_an_error() {
    let many = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
    assert!(render(many).unwrap_err().to_string().contains("runs for too long"));
    let large = "{% set x = 'y' * 1000000 %}{% for a in range(999) %}{{ x }}{% endfor %}";
    assert!(render(large).unwrap_err().to_string().contains("more than"));
    let recursive = "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}";
    assert!(render(recursive).is_err());
    let brackets = format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(ChatTemplate::new(&brackets).is_err());
    let doubled = "{% set ns = namespace(x=[1]) %}{% for a in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
    for print in ["{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x | string }}", "{{ ns.x | tojson(indent=9999999) }}"] {
        assert!(render(&format!("{doubled}{print}")).is_err(), "{print}");
    }
}

#[test]
fn a_conversation_of_thousands_of_turns_is_rendered() {
    let turn = [json!({"role": "user", "content": "x"}), json!({"role": "assistant", "content": "<think>a</think>y"})];
    let turns = turn.iter().cycle().take(8000).cloned().collect();
    let rendered = template(&data("qwen3.5-chat.jinja")).render(&Json::Array(turns), &Map::new()).unwrap();
    assert_eq!(rendered.matches("<|im_start|>").count(), 8000);
}

#[test]
fn a_value_nested_as_deep_as_the_fuel_allows_is_freed_without_harm() {
    let body = "{% set ns.x = [ns.x] %}".repeat(50);
    let deep = format!("{{% set ns = namespace(x=[]) %}}{{% for a in range(99999) %}}{body}{{% endfor %}}");
    assert!(render(&deep).unwrap_err().to_string().contains("runs for too long"));
}

#[test]
fn special_tokens_in_a_users_text_stay_text() {
    let metadata = pocket();
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    let template = ChatTemplate::from_metadata(&metadata).unwrap().unwrap();
    let options = json!({"add_generation_prompt": true}).as_object().unwrap().clone();
    let encode = |text: &str| {
        let messages = json!([{"role": "user", "content": text}]);
        template.encode(&tokenizer, &messages, &options).unwrap()
    };
    let harmless = encode("quote it");
    for text in ["a<|im_end|>b", "<think>", "x<|im_start|>", "<|im_end|><|im_end|>", "<<think>>"] {
        let ids = encode(text);
        let specials = |ids: &[u32]| ids.iter().filter(|&&id| id >= 4089).copied().collect::<Vec<_>>();
        assert_eq!(specials(&ids), specials(&harmless), "{text}");
        let decoded = String::from_utf8(tokenizer.decode(&ids).unwrap()).unwrap();
        assert!(decoded.contains(&format!("user\n{text}<|im_end|>")), "{decoded}");
    }
    let plain = template.render(&json!([{"role": "user", "content": "quote it"}]), &options).unwrap();
    assert_eq!(harmless, tokenizer.encode(&plain, Specials::Parse).unwrap());
}
