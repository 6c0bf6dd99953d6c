// Work that is given to other agents, and prompts that have a name: tasks, commands and skills.
import assert from "node:assert/strict"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { pathToFileURL } from "node:url"
import { check, ok, refused, textOf, toolsOf } from "./checks.mjs"
import { EventRecorder } from "./event_recorder.mjs"
import { saying } from "./turns.mjs"

export async function tasks(api, { directory, isKedge }) {
  // The real server has no model that follows commands like these.
  if (!isKedge) return
  const recorder = await EventRecorder.open(api.events)
  const session = await ok(api.create({ title: "Tasks" }))

  await check("a task is a session below, which its call names", async () => {
    const script = "task general write t.txt hi\nand task explore read README.md\nsay Both."
    assert.equal(textOf(await ok(api.prompt(session.id, saying(script)))), "Both.")
    assert.equal(await readFile(join(directory, "t.txt"), "utf8"), "hi\n")
    const children = await ok(api.children(session.id))
    assert.deepEqual(children.map(({ title }) => title).sort(), [
      "Read README.md (@explore subagent)",
      "Write t.txt hi (@general subagent)",
    ])
    const calls = (await ok(api.messages(session.id))).flatMap(toolsOf)
    assert.deepEqual(calls.map(({ tool, state }) => [tool, state.status]), [
      ["task", "completed"],
      ["task", "completed"],
    ])
    const named = calls.map(({ state }) => state.metadata.sessionId)
    assert.deepEqual(named.sort(), children.map(({ id }) => id).sort())
    for (const { parentID, id } of children) {
      assert.equal(parentID, session.id)
      const told = await recorder.of("session.created", id)
      assert.equal(told.properties.info.parentID, session.id)
      assert.equal((await ok(api.messages(id)))[0].info.role, "user")
    }
  })

  await check("an abort of the caller ends its task", async () => {
    const caller = await ok(api.create({ title: "Aborted" }))
    await ok(api.promptAsync(caller.id, saying("task general slow 2 300s say Half a word")))
    await recorder.until(
      ({ type, properties }) =>
        type === "message.part.updated" && properties.part.state?.metadata?.sessionId &&
        properties.part.sessionID === caller.id,
    )
    const [child] = await ok(api.children(caller.id))
    await recorder.of("message.part.delta", child.id)
    assert.equal(await ok(api.abort(caller.id)), true)
    const [tool] = (await ok(api.messages(caller.id))).flatMap(toolsOf)
    assert.equal(tool.state.error, "Tool execution aborted")
    const last = (await ok(api.messages(child.id))).at(-1)
    assert.equal(last.info.error.name, "MessageAbortedError")
    assert.deepEqual(await ok(api.status()), {})
  })

  await check("parts of a prompt are tasks, and name agents", async () => {
    const subtask = { type: "subtask", agent: "general", description: "a note", prompt: "write n.txt x" }
    const answer = await ok(api.prompt(session.id, { parts: [subtask] }))
    assert.equal(answer.info.agent, "build")
    assert.ok((await ok(api.children(session.id))).some(({ title }) => title === "a note (@general subagent)"))
    const mention = [{ type: "text", text: "say Hello." }, { type: "agent", name: "general" }]
    await ok(api.prompt(session.id, { parts: mention }))
    const asked = (await ok(api.messages(session.id))).filter(({ info }) => info.role === "user").at(-1)
    assert.deepEqual(asked.parts.map(({ type }) => type), ["text", "agent", "text"])
  })

  await check("an undo takes what tasks did", async () => {
    const [{ info }] = await ok(api.messages(session.id))
    const { receipt } = await ok(api.revert(session.id, { messageID: info.id }))
    assert.deepEqual(receipt.files.map(({ path }) => path).sort(), ["n.txt", "t.txt"])
    await ok(api.unrevert(session.id))
    assert.equal(await readFile(join(directory, "t.txt"), "utf8"), "hi\n")
  })

  await check("a command has arguments and a file, and is told", async () => {
    const listed = (await ok(api.commands())).find(({ name }) => name === "greet")
    assert.equal(listed.description, "greets somebody")
    assert.equal(listed.source, "command")
    assert.deepEqual(listed.hints, ["$1", "$2", "$3"])
    const body = { command: "greet", arguments: 'h.txt "good day" README.md' }
    const answer = await ok(api.command(session.id, body))
    assert.equal(textOf(answer), "See @README.md for more.")
    assert.equal(await readFile(join(directory, "h.txt"), "utf8"), "good day\n")
    const told = await recorder.of("command.executed", session.id)
    assert.deepEqual(told.properties, {
      name: "greet",
      sessionID: session.id,
      arguments: body.arguments,
      messageID: answer.info.id,
    })
    const asked = await ok(api.message(session.id, answer.info.parentID))
    const [file] = asked.parts.filter(({ type }) => type === "file")
    assert.equal(file.url, pathToFileURL(join(directory, "README.md")).href)
  })

  await check("an unknown command names those that are alike", async () => {
    const error = await refused(400, api.command(session.id, { command: "gret", arguments: "" }))
    assert.match(error.data.message, /gret/)
    assert.match(error.data.message, /greet/)
  })

  await check("a project is introduced", async () => {
    const { info } = (await ok(api.messages(session.id))).at(-1)
    const { providerID, modelID } = info
    const messageID = `msg_${"f".repeat(12)}AAAAAAAAAAAAAA`
    assert.equal(await ok(api.init(session.id, { providerID, modelID, messageID })), true)
    assert.match(textOf(await ok(api.message(session.id, messageID))), /AGENTS\.md/)
    assert.ok((await ok(api.project())).time.initialized > 0)
  })

  await check("a skill is a command, and is read by the model", async () => {
    const listed = (await ok(api.commands())).find(({ name }) => name === "tides")
    assert.equal(listed.source, "skill")
    const answer = await ok(api.prompt(session.id, saying("skill tides\nshow")))
    assert.match(textOf(answer), /High water is at noon/)
    if (!api.skills) return
    const [skill] = await ok(api.skills())
    assert.deepEqual([skill.name, skill.description], ["tides", "When it is high water."])
    assert.match(skill.location, /skills\/tides\/SKILL\.md$/)
  })

  recorder.close()
}
