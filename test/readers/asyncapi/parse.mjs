// Reads an AsyncAPI document from standard input. Prints its channels and the count of their
// messages as JSON; or what is wrong, and exits with 1.
import { readFileSync } from 'node:fs'
import { Parser } from '@asyncapi/parser'

const { document, diagnostics } = await new Parser().parse(readFileSync(0, 'utf8'))
const errors = diagnostics.filter((d) => d.severity === 0)
for (const d of errors) console.error(`${d.path.join('.')}: ${d.message} (${d.code})`)
if (errors.length > 0 || !document) process.exit(1)
const channels = {}
for (const channel of document.allChannels().all()) {
  channels[channel.id()] = { address: channel.address(), messages: channel.messages().all().length }
}
console.log(JSON.stringify({ version: document.version(), channels }))
