/** `write_file`: puts or replaces a workspace file (CHAT-9); readers see the old text or the new one, whole. */
import * as z from "zod";
import { answered, defineNativeTool, jsonReply, sessionOf } from "./native-tool.ts";

export const writeFile = defineNativeTool({
  name: "write_file",
  className: "WriteFileTool",
  title: "Write file",
  description: "Writes text to a file of the session's workspace; an existing file is replaced.",
  input: () =>
    z.strictObject({
      path: z.string().describe("File path; a leading '/' means the workspace root."),
      content: z.string().describe("The whole text of the file, kept as UTF-8."),
    }),
  effect: "write",
  repeat: "natural",
  outputTrust: "own",
  usesWorkspace: true,
  invoke: async ({ path, content }, run) => {
    const { tenant, config, signal } = run.context;
    const place = { tenant, session: sessionOf(run), path };
    const options = { mediaType: "text/plain; charset=utf-8", limit: config.settings.workspace_bytes, signal };
    const written = await answered(run.workspace.write(place, Buffer.from(content, "utf8"), options));
    return jsonReply({ path: written.path, bytes: written.bytes, replaced: written.replaced });
  },
});
