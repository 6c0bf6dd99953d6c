// The first entry point of OpenCode's SDK: the calls of the scripts, in its own form.
import { createOpencodeClient } from "@opencode-ai/sdk"

export function connect(url, directory) {
  const client = createOpencodeClient({ baseUrl: url, directory })
  const { session } = client
  return {
    client,
    throwing: (id) => session.get({ path: { id }, throwOnError: true }),

    config: () => client.config.get(),
    providers: () => client.config.providers(),
    provider: () => client.provider.list(),
    providerAuth: () => client.provider.auth(),
    agents: () => client.app.agents(),
    log: (body) => client.app.log({ body }),
    commands: () => client.command.list(),
    path: () => client.path.get(),
    project: () => client.project.current(),
    projects: () => client.project.list(),
    vcs: () => client.vcs.get(),
    mcp: () => client.mcp.status(),
    lsp: () => client.lsp.status(),
    formatter: () => client.formatter.status(),
    toolIds: () => client.tool.ids(),
    files: (path) => client.file.list({ query: { path } }),
    readFile: (path) => client.file.read({ query: { path } }),
    fileStatus: () => client.file.status(),
    findText: (pattern) => client.find.text({ query: { pattern } }),
    findFiles: (query) => client.find.files({ query: { query } }),
    findSymbols: (query) => client.find.symbols({ query: { query } }),

    list: (query = {}) => session.list({ query }),
    create: (body) => session.create({ body }),
    status: () => session.status(),
    get: (id) => session.get({ path: { id } }),
    delete: (id) => session.delete({ path: { id } }),
    update: (id, body) => session.update({ path: { id }, body }),
    children: (id) => session.children({ path: { id } }),
    todo: (id) => session.todo({ path: { id } }),
    diff: (id, messageID) => session.diff({ path: { id }, query: { messageID } }),
    messages: (id, query = {}) => session.messages({ path: { id }, query }),
    message: (id, messageID) => session.message({ path: { id, messageID } }),
    prompt: (id, body) => session.prompt({ path: { id }, body }),
    promptAsync: (id, body) => session.promptAsync({ path: { id }, body }),
    fork: (id, body) => session.fork({ path: { id }, body }),
    abort: (id) => session.abort({ path: { id } }),
    command: (id, body) => session.command({ path: { id }, body }),
    init: (id, body) => session.init({ path: { id }, body }),
    shell: (id, body) => session.shell({ path: { id }, body }),
    summarize: (id, body) => session.summarize({ path: { id }, body }),
    revert: (id, body) => session.revert({ path: { id }, body }),
    unrevert: (id) => session.unrevert({ path: { id } }),
    respond: (id, permissionID, response) =>
      client.postSessionIdPermissionsPermissionId({ path: { id, permissionID }, body: { response } }),

    later: (id) => [session.share({ path: { id } })],

    events: (options) => client.event.subscribe(options),
    globalEvents: (options) => client.global.event(options),
  }
}
