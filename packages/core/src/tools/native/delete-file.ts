/** `delete_file`: removes a workspace file (CHAT-9). */
import * as z from "zod";
import { filePath } from "../../workspace/path.ts";
import { answered, defineNativeTool, jsonReply, sessionOf } from "./native-tool.ts";

export const deleteFile = defineNativeTool({
  name: "delete_file",
  className: "DeleteFileTool",
  title: "Delete file",
  description: "Deletes a file of the session's workspace.",
  input: () =>
    z.strictObject({
      path: z.string().describe("File path; a leading '/' means the workspace root."),
    }),
  effect: "write",
  repeat: "natural",
  outputTrust: "own",
  usesWorkspace: true,
  invoke: async ({ path }, run) => {
    await answered(run.workspace.delete({ tenant: run.context.tenant, session: sessionOf(run), path }));
    return jsonReply({ path: filePath(path), deleted: true });
  },
});
