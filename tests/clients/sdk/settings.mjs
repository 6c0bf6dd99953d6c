// What a program asks before it begins: models, agents, tools, the project and its files.
import assert from "node:assert/strict"
import { check, ok } from "./checks.mjs"

export async function settings(api, { directory }) {
  await check("the configuration is the project's", async () => {
    assert.equal((await ok(api.config())).model, "kedge/offline")
  })

  await check("the offline model is there and connected", async () => {
    const { providers, default: chosen } = await ok(api.providers())
    const provider = providers.find(({ id }) => id === "kedge")
    assert.equal(provider.models.offline.name, "Offline")
    assert.equal(chosen.kedge, "offline")
    const { all, connected } = await ok(api.provider())
    assert.ok(all.some(({ id }) => id === "kedge"))
    assert.ok(connected.includes("kedge"))
    assert.equal(typeof (await ok(api.providerAuth())), "object")
  })

  await check("agents, commands and tools are listed", async () => {
    const agents = await ok(api.agents())
    const build = agents.find(({ name }) => name === "build")
    assert.equal(build.mode, "primary")
    assert.ok(agents.some(({ name }) => name === "plan"))
    assert.ok(Array.isArray(await ok(api.commands())))
    const tools = await ok(api.toolIds())
    for (const name of ["bash", "read", "write", "edit", "glob", "grep", "todowrite"]) {
      assert.ok(tools.includes(name), name)
    }
  })

  await check("the project is where it is", async () => {
    const path = await ok(api.path())
    assert.equal(path.directory, directory)
    assert.equal(path.worktree, directory)
    const project = await ok(api.project())
    assert.equal(project.worktree, directory)
    assert.equal(project.vcs, "git")
    assert.ok((await ok(api.projects())).some(({ id }) => id === project.id))
    assert.equal((await ok(api.vcs())).branch, "main")
  })

  await check("there are no servers for tools, languages or formats", async () => {
    assert.deepEqual(await ok(api.mcp()), {})
    assert.deepEqual(await ok(api.lsp()), [])
    assert.deepEqual(await ok(api.formatter()), [])
  })

  await check("files are listed, read and searched", async () => {
    const listed = await ok(api.files("."))
    const readme = listed.find(({ name }) => name === "README.md")
    assert.equal(readme.path, "README.md")
    assert.equal(readme.type, "file")
    const read = await ok(api.readFile("README.md"))
    assert.equal(read.type, "text")
    assert.match(read.content, /needle/)
    assert.deepEqual(await ok(api.fileStatus()), [])
    const [match] = await ok(api.findText("needle"))
    assert.equal(match.path.text, "README.md")
    assert.equal(match.line_number, 3)
    assert.equal((await ok(api.findFiles("READ")))[0], "README.md")
    assert.deepEqual(await ok(api.findSymbols("needle")), [])
  })

  await check("a log entry is taken", async () => {
    const entry = { service: "story", level: "info", message: "It begins." }
    assert.equal(await ok(api.log(entry)), true)
  })

  if (!api.health) return

  await check("the second entry point asks for more", async () => {
    assert.equal((await ok(api.health())).healthy, true)
    assert.ok(Array.isArray(await ok(api.skills())))
    const project = await ok(api.project())
    const directories = await ok(api.projectDirectories(project.id))
    assert.ok(JSON.stringify(directories).includes(directory))
    assert.deepEqual(await ok(api.vcsStatus()), [])
    assert.deepEqual(await ok(api.vcsDiff()), [])
  })
}
