// Prompts and their answers, to the end or until they are aborted, and a person's own commands.
import assert from "node:assert/strict"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { check, ok, refused, textOf, toolsOf } from "./checks.mjs"
import { EventRecorder } from "./event_recorder.mjs"

export const saying = (text) => ({ parts: [{ type: "text", text }] })

export async function turns(api, { directory, isKedge }) {
  const session = await ok(api.create({ title: "Turns" }))

  await check("a prompt is answered, step by step", async () => {
    const script = "write a.txt one\nedit a.txt one two\ntodo [x] begin | [~] go on\nsay Done so far."
    const answer = await ok(api.prompt(session.id, saying(script)))
    assert.equal(answer.info.role, "assistant")
    assert.equal(answer.info.finish, "stop")
    assert.equal(textOf(answer), "Done so far.")
    assert.equal(await readFile(join(directory, "a.txt"), "utf8"), "two\n")
    const messages = await ok(api.messages(session.id))
    assert.deepEqual(
      messages.map(({ info }) => info.role),
      ["user", "assistant", "assistant", "assistant", "assistant"],
    )
    assert.deepEqual(messages.at(-1), answer)
    assert.deepEqual(await ok(api.message(session.id, answer.info.id)), answer)
    const tools = messages.flatMap(toolsOf)
    assert.deepEqual(tools.map(({ tool }) => tool), ["write", "edit", "todowrite"])
    assert.ok(tools.every(({ state }) => state.status === "completed"))
    const [newest] = await ok(api.messages(session.id, { limit: 1 }))
    assert.equal(newest.info.id, answer.info.id)
  })

  await check("todos and changes of a session can be asked for", async () => {
    assert.deepEqual(await ok(api.todo(session.id)), [
      { content: "begin", status: "completed", priority: "medium" },
      { content: "go on", status: "in_progress", priority: "medium" },
    ])
    const [{ info }] = await ok(api.messages(session.id))
    const [diff] = await ok(api.diff(session.id, info.id))
    assert.equal(diff.file, "a.txt")
    assert.deepEqual([diff.additions, diff.deletions], [1, 0])
    if (isKedge) assert.equal((await ok(api.diff(session.id)))[0].file, "a.txt")
  })

  await check("a prompt can be noted without an answer", async () => {
    const noted = await ok(api.prompt(session.id, { noReply: true, ...saying("say Never.") }))
    assert.equal(noted.info.role, "user")
    assert.equal((await ok(api.messages(session.id))).at(-1).info.id, noted.info.id)
  })

  await check("a prompt in the background is busy until it is aborted", async () => {
    const recorder = await EventRecorder.open(api.events)
    const slow = await ok(api.create({ title: "Slow" }))
    await ok(api.promptAsync(slow.id, saying("slow 2 300s say A very long story.")))
    await recorder.of("message.part.delta", slow.id)
    assert.deepEqual((await ok(api.status()))[slow.id], { type: "busy" })
    const [{ info }] = await ok(api.messages(slow.id))
    const busy = await refused(409, api.revert(slow.id, { messageID: info.id }))
    assert.equal(busy._tag, "SessionBusyError")
    assert.equal(await ok(api.abort(slow.id)), true)
    await recorder.of("session.idle", slow.id)
    await recorder.until(
      ({ type, properties }) => type === "message.updated" && properties.info.error,
    )
    const answer = (await ok(api.messages(slow.id))).at(-1)
    assert.equal(answer.info.error.name, "MessageAbortedError")
    assert.equal((await ok(api.status()))[slow.id], undefined)
    recorder.close()
  })

  await check("a person's own command is part of the session", async () => {
    const command = "echo hello > shell.txt && cat shell.txt"
    const answer = await ok(api.shell(session.id, { agent: "build", command }))
    const shown = answer.parts ?? (await ok(api.messages(session.id))).at(-1).parts
    const [tool] = toolsOf({ parts: shown })
    assert.equal(tool.tool, "bash")
    assert.equal(tool.state.status, "completed")
    assert.equal(tool.state.output.trim(), "hello")
    assert.equal(await readFile(join(directory, "shell.txt"), "utf8"), "hello\n")
  })

  await check("a conversation can be made shorter", async () => {
    const recorder = await EventRecorder.open(api.events)
    const long = await ok(api.create({ title: "Long" }))
    const { info } = await ok(api.prompt(long.id, saying("say A long story.")))
    const { providerID, modelID } = info
    assert.equal(await ok(api.summarize(long.id, { providerID, modelID })), true)
    await recorder.of("session.compacted", long.id)
    const [asked, summary] = (await ok(api.messages(long.id))).slice(-2)
    assert.deepEqual(asked.parts.map(({ type, auto }) => [type, auto]), [["compaction", false]])
    assert.equal(summary.info.summary, true)
    assert.equal(summary.info.parentID, asked.info.id)
    assert.match(textOf(summary), /## Objective/)
    assert.equal(textOf(await ok(api.prompt(long.id, saying("say Shorter.")))), "Shorter.")
    assert.equal((await ok(api.messages(long.id))).length, 6)
    recorder.close()
  })

  if (!isKedge) return

  await check("what comes later says so", async () => {
    for (const answer of api.later(session.id)) {
      assert.match(JSON.stringify(await refused(501, answer)), /message/)
    }
  })
}
