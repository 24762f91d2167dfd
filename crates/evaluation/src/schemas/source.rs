//! The types that outputs are made of, as their sources have them: names, doc comments, and what serde's attributes make of them in JSON
//! (<https://serde.rs/attributes.html>). An attribute that is not known here is an error: a schema is never silently wrong.

use std::collections::BTreeMap;
use std::path::Path;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// What a value is in JSON.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// `true` or `false`.
    Flag,
    /// A string.
    Text,
    /// A whole number.
    Integer {
        /// Whether it may be below zero.
        is_signed: bool,
    },
    /// Any number.
    Number,
    /// Values in order.
    List {
        /// What each of them is.
        of: Box<Shape>,
        /// How many there are; `None` for any number.
        length: Option<usize>,
    },
    /// Values by names that are not fixed.
    Map(Box<Shape>),
    /// What it is, or `null` where that is unknown.
    Nullable(Box<Shape>),
    /// A type by its name.
    Named(String),
}

/// A key of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The key.
    pub name: String,
    /// What it means.
    pub doc: String,
    /// What its value is.
    pub shape: Shape,
    /// Whether every document has it, older ones included.
    pub is_required: bool,
    /// Whether the keys of its value stand in its place.
    pub is_flattened: bool,
}

/// What belongs to a variant.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Its name alone.
    Nothing,
    /// One value.
    Value(Shape),
    /// Keys.
    Fields(Vec<Field>),
}

/// One of several things that a value may be.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// Its name in JSON.
    pub name: String,
    /// What it means.
    pub doc: String,
    /// What belongs to it.
    pub content: Content,
}

/// Where the name of a variant stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Tagging {
    /// It is the string, or the one key of an object.
    External,
    /// Nowhere.
    Untagged,
    /// Under this key.
    Internal(String),
}

/// How a type is written.
#[derive(Debug, Clone, PartialEq)]
pub enum Definition {
    /// As something else.
    Alias(Shape),
    /// As an object.
    Fields(Vec<Field>),
    /// As one of these.
    Variants(Tagging, Vec<Variant>),
}

/// A type.
#[derive(Debug, Clone, PartialEq)]
pub struct Type {
    /// What it is.
    pub doc: String,
    /// How it is written.
    pub definition: Definition,
}

impl Type {
    /// The names of the types that it is made of.
    pub fn names(&self) -> Vec<&str> {
        fn of(shape: &Shape) -> Option<&str> {
            match shape {
                Shape::Named(name) => Some(name),
                Shape::List { of: inner, .. } | Shape::Map(inner) | Shape::Nullable(inner) => of(inner),
                Shape::Flag | Shape::Text | Shape::Integer { .. } | Shape::Number => None,
            }
        }
        let shapes: Vec<&Shape> = match &self.definition {
            Definition::Alias(shape) => vec![shape],
            Definition::Fields(fields) => fields.iter().map(|field| &field.shape).collect(),
            Definition::Variants(_, variants) => variants.iter().flat_map(Variant::shapes).collect(),
        };
        shapes.into_iter().filter_map(of).collect()
    }
}

impl Variant {
    fn shapes(&self) -> Vec<&Shape> {
        match &self.content {
            Content::Nothing => vec![],
            Content::Value(shape) => vec![shape],
            Content::Fields(fields) => fields.iter().map(|field| &field.shape).collect(),
        }
    }
}

/// Sources that were read.
pub struct Source {
    items: BTreeMap<String, Vec<syn::Item>>,
}

impl Source {
    /// Reads all Rust files below these places. An error names the one that cannot be read.
    pub fn read(places: &[std::path::PathBuf]) -> Result<Self> {
        let mut source = Self { items: BTreeMap::new() };
        let mut places = places.to_vec();
        while let Some(place) = places.pop() {
            let cannot = |error| io_error("read", place.display(), &error);
            if place.is_dir() {
                for entry in std::fs::read_dir(&place).map_err(cannot)? {
                    places.push(entry.map_err(cannot)?.path());
                }
            } else if place.extension().is_some_and(|extension| extension == "rs") {
                source.add(&place, &std::fs::read_to_string(&place).map_err(cannot)?)?;
            }
        }
        Ok(source)
    }

    fn add(&mut self, path: &Path, text: &str) -> Result<()> {
        let file = syn::parse_file(text).map_err(|error| wrong(&path.display().to_string(), error))?;
        for item in file.items {
            let (name, attributes) = match &item {
                syn::Item::Struct(item) => (item.ident.to_string(), &item.attrs),
                syn::Item::Enum(item) => (item.ident.to_string(), &item.attrs),
                _ => continue,
            };
            if attributes.iter().any(is_serialised) {
                self.items.entry(name).or_default().push(item);
            }
        }
        Ok(())
    }

    /// A type by its name. An error where there is none or several of that name, or one of its attributes is not known here.
    pub fn find(&self, name: &str) -> Result<Type> {
        let found = match self.items.get(name).map(Vec::as_slice) {
            Some([syn::Item::Struct(item)]) => self.object(item),
            Some([syn::Item::Enum(item)]) => self.variants(item),
            _ => Err(UserError::cannot_run("not one type of this name was found")),
        };
        found.map_err(|error| wrong(name, error))
    }

    fn object(&self, item: &syn::ItemStruct) -> Result<Type> {
        let container = Attributes::of(&item.attrs)?;
        let definition = match &item.fields {
            _ if container.into.is_some() => Definition::Alias(container.written_as()),
            syn::Fields::Named(fields) => Definition::Fields(self.fields(fields, container.has_default)?),
            _ => return Err(UserError::cannot_run("a struct without names of fields")),
        };
        Ok(Type { doc: container.doc, definition })
    }

    fn variants(&self, item: &syn::ItemEnum) -> Result<Type> {
        let container = Attributes::of(&item.attrs)?;
        if container.into.is_some() {
            let definition = Definition::Alias(container.written_as());
            return Ok(Type { doc: container.doc, definition });
        }
        let variant = |variant: &syn::Variant| {
            let content = match &variant.fields {
                syn::Fields::Unit => Content::Nothing,
                syn::Fields::Named(fields) => Content::Fields(self.fields(fields, false)?),
                syn::Fields::Unnamed(fields) => match fields.unnamed.first() {
                    Some(only) if fields.unnamed.len() == 1 => Content::Value(shape(&only.ty)?),
                    _ => return Err(UserError::cannot_run("a variant of several values")),
                },
            };
            let name = container.renamed(&variant.ident.to_string())?;
            Ok(Variant { name, doc: Attributes::of(&variant.attrs)?.doc, content })
        };
        let variants = item.variants.iter().map(variant).collect::<Result<_>>()?;
        let tagging = match container.tag {
            Some(key) => Tagging::Internal(key),
            None if container.is_untagged => Tagging::Untagged,
            None => Tagging::External,
        };
        Ok(Type { doc: container.doc, definition: Definition::Variants(tagging, variants) })
    }

    /// Those that are written; those of a flattened struct in its place.
    fn fields(&self, fields: &syn::FieldsNamed, have_defaults: bool) -> Result<Vec<Field>> {
        let mut found = vec![];
        for field in &fields.named {
            let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
            let attributes = Attributes::of(&field.attrs).map_err(|error| wrong(&name, error))?;
            if attributes.is_skipped {
                continue;
            }
            let mut shape = match attributes.written_by.as_deref() {
                Some("crate::number::serialize") => Shape::Nullable(Box::new(Shape::Number)),
                Some("port_or_null") => Shape::Nullable(Box::new(Shape::Integer { is_signed: false })),
                Some(other) => return Err(wrong(&name, format!("what {other} writes is not known"))),
                None => shape(&field.ty).map_err(|error| wrong(&name, error))?,
            };
            if attributes.is_flattened
                && let Definition::Fields(inner) = self.flattened(&shape)?
            {
                found.extend(inner);
                continue;
            }
            if let (true, Shape::Nullable(inner)) = (attributes.may_be_absent, &shape) {
                shape = (**inner).clone();
            }
            let unknown = if attributes.may_be_absent { "Absent" } else { "`null`" };
            let is_required = !attributes.may_be_absent && !attributes.has_default && !have_defaults;
            let doc = attributes.doc.replace("`None`", unknown).replace("; Absent", "; absent");
            found.push(Field { name, doc, shape, is_required, is_flattened: attributes.is_flattened });
        }
        Ok(found)
    }

    fn flattened(&self, shape: &Shape) -> Result<Definition> {
        let Shape::Named(name) = shape else {
            return Err(UserError::cannot_run("what is flattened is no type of ours"));
        };
        match self.find(name)?.definition {
            Definition::Alias(shape) => self.flattened(&shape),
            other => Ok(other),
        }
    }
}

/// Whether an attribute derives `Serialize`.
fn is_serialised(attribute: &syn::Attribute) -> bool {
    let mut found = false;
    let read = attribute.path().is_ident("derive").then(|| {
        attribute.parse_nested_meta(|meta| {
            found |= meta.path.is_ident("Serialize");
            Ok(())
        })
    });
    found && read.is_some_and(|read| read.is_ok())
}

fn wrong(name: &str, why: impl std::fmt::Display) -> UserError {
    UserError::cannot_run(format!("{name}: {why}"))
}

/// What the attributes of an item say.
#[derive(Default)]
struct Attributes {
    doc: String,
    into: Option<String>,
    tag: Option<String>,
    rename_all: Option<String>,
    /// By which function a value is written.
    written_by: Option<String>,
    is_untagged: bool,
    is_skipped: bool,
    is_flattened: bool,
    may_be_absent: bool,
    has_default: bool,
}

impl Attributes {
    fn of(attributes: &[syn::Attribute]) -> Result<Self> {
        let mut found = Self::default();
        let mut lines = vec![];
        for attribute in attributes {
            if attribute.path().is_ident("serde") {
                let read = attribute.parse_nested_meta(|meta| found.read(&meta));
                read.map_err(|error| UserError::cannot_run(error.to_string()))?;
            } else if let syn::Meta::NameValue(syn::MetaNameValue { path, value, .. }) = &attribute.meta
                && path.is_ident("doc")
                && let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(line), .. }) = value
            {
                lines.push(line.value().trim().to_owned());
            }
        }
        // Links lead nowhere outside of the source.
        found.doc = lines.join(" ").trim().replace("[`", "`").replace("`]", "`");
        Ok(found)
    }

    fn read(&mut self, meta: &syn::meta::ParseNestedMeta) -> syn::Result<()> {
        let word = meta.path.require_ident()?.to_string();
        let has_value = meta.input.peek(syn::Token![=]);
        let value = has_value.then(|| Ok::<_, syn::Error>(meta.value()?.parse::<syn::LitStr>()?.value()));
        let value = value.transpose()?;
        match word.as_str() {
            "into" => self.into = value,
            "tag" => self.tag = value,
            "rename_all" => self.rename_all = value,
            "with" | "serialize_with" => self.written_by = value,
            "untagged" => self.is_untagged = true,
            "skip" => self.is_skipped = true,
            "flatten" => self.is_flattened = true,
            "skip_serializing_if" => self.may_be_absent = true,
            "default" => self.has_default = true,
            // How it is read.
            "from" | "try_from" | "deny_unknown_fields" => {}
            other => return Err(meta.error(format!("serde({other}) is not known"))),
        }
        Ok(())
    }

    fn written_as(&self) -> Shape {
        match self.into.as_deref() {
            None | Some("String") => Shape::Text,
            Some(other) => Shape::Named(other.to_owned()),
        }
    }

    /// The name of a variant in JSON.
    fn renamed(&self, name: &str) -> Result<String> {
        let separator = match self.rename_all.as_deref() {
            None => return Ok(name.to_owned()),
            Some("snake_case") => "_",
            Some("kebab-case") => "-",
            Some(other) => return Err(UserError::cannot_run(format!("names in {other} are not known"))),
        };
        let letter = |(at, letter): (usize, char)| {
            let begins_word = at > 0 && letter.is_uppercase();
            let separator = if begins_word { separator } else { "" };
            format!("{separator}{}", letter.to_ascii_lowercase())
        };
        Ok(name.chars().enumerate().map(letter).collect())
    }
}

/// What a value of this type is.
fn shape(of: &syn::Type) -> Result<Shape> {
    let list = |of: &syn::Type, length| Ok(Shape::List { of: Box::new(shape(of)?), length });
    match of {
        syn::Type::Reference(reference) => shape(&reference.elem),
        syn::Type::Slice(slice) => list(&slice.elem, None),
        syn::Type::Array(array) => match &array.len {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(length), .. }) => {
                list(&array.elem, length.base10_parse().ok())
            }
            _ => Err(UserError::cannot_run("an array of unknown length")),
        },
        syn::Type::Tuple(tuple) => {
            let mut shapes = tuple.elems.iter().map(shape).collect::<Result<Vec<_>>>()?;
            let length = Some(shapes.len());
            shapes.dedup();
            match <[Shape; 1]>::try_from(shapes) {
                Ok([only]) => Ok(Shape::List { of: Box::new(only), length }),
                Err(_) => Err(UserError::cannot_run("a tuple of different things")),
            }
        }
        syn::Type::Path(path) => path.path.segments.last().map_or_else(
            || Err(UserError::cannot_run("a path without an end")),
            |last| shape_of_path(last, &generics(last)),
        ),
        _ => Err(UserError::cannot_run("a type that JSON does not have")),
    }
}

fn generics(of: &syn::PathSegment) -> Vec<&syn::Type> {
    let syn::PathArguments::AngleBracketed(arguments) = &of.arguments else { return vec![] };
    let types = arguments.args.iter().filter_map(|argument| match argument {
        syn::GenericArgument::Type(inner) => Some(inner),
        _ => None,
    });
    types.collect()
}

fn shape_of_path(last: &syn::PathSegment, inner: &[&syn::Type]) -> Result<Shape> {
    let name = last.ident.to_string();
    Ok(match (name.as_str(), inner) {
        ("bool", _) => Shape::Flag,
        ("String" | "str" | "PathBuf" | "IpAddr" | "SocketAddr", _) => Shape::Text,
        ("u8" | "u16" | "u32" | "u64" | "usize", _) => Shape::Integer { is_signed: false },
        ("i8" | "i16" | "i32" | "i64", _) => Shape::Integer { is_signed: true },
        ("f64", _) => Shape::Number,
        // The model's own: not finite is null.
        ("Number", _) => Shape::Nullable(Box::new(Shape::Number)),
        ("Option", [inner]) => match shape(inner)? {
            nullable @ Shape::Nullable(_) => nullable,
            other => Shape::Nullable(Box::new(other)),
        },
        ("Vec", [inner]) => Shape::List { of: Box::new(shape(inner)?), length: None },
        ("BTreeMap", [_, inner]) => Shape::Map(Box::new(shape(inner)?)),
        ("Box" | "Arc", [inner]) => shape(inner)?,
        (_, []) => Shape::Named(name),
        _ => return Err(UserError::cannot_run(format!("what {name} writes is not known"))),
    })
}
