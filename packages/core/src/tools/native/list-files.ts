/** `list_files`: what is in the workspace (CHAT-9). */
import * as z from "zod";
import { toRfc3339 } from "../../time.ts";
import { answered, defineNativeTool, jsonReply, sessionOf } from "./native-tool.ts";

/** More would fill the model's context without telling it more. */
const mostFiles = 1_000;

export const listFiles = defineNativeTool({
  name: "list_files",
  className: "ListFilesTool",
  title: "List files",
  description: "Lists the files of a directory of the session's workspace and of the directories below it.",
  input: () =>
    z.strictObject({
      path: z.string().default("/").describe("Directory; '/' is the workspace root."),
    }),
  effect: "read",
  repeat: "natural",
  outputTrust: "own",
  usesWorkspace: true,
  invoke: async ({ path }, run) => {
    const place = { tenant: run.context.tenant, session: sessionOf(run), path };
    const files = await answered(run.workspace.list(place));
    return jsonReply({
      files: files
        .slice(0, mostFiles)
        .map((file) => ({ path: file.path, bytes: file.bytes, updated_at: toRfc3339(file.updatedAt) })),
      total: files.length,
      ...(files.length > mostFiles
        ? { note: `Only the first ${mostFiles} are listed; name a directory in 'path'.` }
        : {}),
    });
  },
});
