// Package truth is an independent witness of what an API server sends: a watch that keeps every
// frame byte for byte, written with nothing but net/http and encoding/json. What a bridge publishes
// is compared with it.
//
// It takes in collections to watch and hands out their changes, per collection in the order in
// which the API server sent them. A watch that is cut continues from the last version; one that
// can't continue without a hole fails the ledger permanently, since a witness that missed something
// is none.
package truth
