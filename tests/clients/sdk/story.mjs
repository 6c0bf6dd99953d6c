// A program that uses everything of the SDK that kedge serves:
//   node story.mjs v1|v2 URL DIRECTORY kedge|opencode SECONDS
// Its last line says how it went; before, it may ask for a restart of the server.
import { asks } from "./asks.mjs"
import { giveUpAfter, tell } from "./checks.mjs"
import { data } from "./data.mjs"
import { edits } from "./edits.mjs"
import { mistakes } from "./mistakes.mjs"
import { sessions } from "./sessions.mjs"
import { settings } from "./settings.mjs"
import { streams } from "./streams.mjs"
import { tasks } from "./tasks.mjs"
import { turns } from "./turns.mjs"

const [entry, url, directory, server, patience] = process.argv.slice(2)
giveUpAfter(Number(patience))
const { connect } = await import(`./${entry}.mjs`)
const api = connect(url, directory)
const at = { url, directory, connect, isKedge: server === "kedge" }

for (const chapter of [settings, sessions, turns, edits, asks, tasks, data, mistakes, streams]) {
  await chapter(api, at)
}
tell()
