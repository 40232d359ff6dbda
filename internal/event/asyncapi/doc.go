// Package asyncapi describes what a configuration publishes, for programs that make code, checks or
// pages of it: an AsyncAPI 3 document, with a JSON Schema for the headers and the payload of each
// message.
//
// In: Sinks, which package app makes of the configuration. Out: a document of maps and lists, to be
// encoded as YAML or JSON. It contacts nobody: what only the API server knows (what "*" means, the
// kinds of objects) is a parameter of the channel.
//
// The schemas of attributes are made here (messages.go), those of payloads are forms.json. They are
// of draft 7, which AsyncAPI includes. They say what is always so, and allow more: a minor version
// may add attributes and members.
package asyncapi
