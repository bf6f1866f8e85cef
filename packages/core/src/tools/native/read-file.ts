/** `read_file`: text of a workspace file (CHAT-9), whole or some of its lines. */
import * as z from "zod";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { WorkspaceFile } from "../../ports/sessions.ts";
import type { OpenFile } from "../../workspace/workspace.ts";
import { answered, defineNativeTool, sessionOf } from "./native-tool.ts";
import { decodeStrictly, encodings, linePieces, type Encoding } from "./text-lines.ts";

const pieceCharacters = 65_536;

const input = () =>
  z.strictObject({
    path: z.string().describe("File path; a leading '/' means the workspace root."),
    encoding: z.enum(encodings).default("utf-8").describe("Encoding of the file."),
    start_line: z.int().min(1).default(1).describe("First line to read, from 1."),
    max_lines: z.int().min(1).optional().describe("How many lines to read; absent: to the end."),
  });
type Input = z.output<ReturnType<typeof input>>;

export const readFile = defineNativeTool({
  name: "read_file",
  className: "ReadFileTool",
  title: "Read file",
  description: "Reads a text file from the session's workspace, whole or by lines.",
  input,
  effect: "read",
  repeat: "natural",
  outputTrust: "own",
  usesWorkspace: true,
  invoke: async (asked, run) => {
    const place = { tenant: run.context.tenant, session: sessionOf(run), path: asked.path };
    const opened = await answered(run.workspace.read(place));
    return {
      mediaType: "text/plain",
      body: await readLines(opened, asked, run.context.config.settings.result_max_bytes),
    };
  },
});

async function readLines({ file, body }: OpenFile, asked: Input, most: number): Promise<string> {
  const after = asked.max_lines === undefined ? Number.POSITIVE_INFINITY : asked.start_line + asked.max_lines;
  let text = "";
  let bytes = 0;
  const chunks = decodeStrictly(body, asked.encoding, (cause) => undecodable(file.path, asked.encoding, cause));
  for await (const piece of linePieces(chunks, pieceCharacters)) {
    if (piece.line >= after) break;
    if (piece.line < asked.start_line) continue;
    bytes += Buffer.byteLength(piece.text);
    if (bytes > most) throw tooLarge(file, most);
    text += piece.text;
  }
  return text;
}

function tooLarge({ path, bytes }: WorkspaceFile, most: number): GatewayError {
  return new GatewayError(
    "tool_output_too_large",
    `'${path}' has ${bytes} bytes; what was asked for is more than ${most} (setting 'result_max_bytes'). Read a part with 'start_line' and 'max_lines'.`,
    { param: "max_lines", extra: { bytes, limit_bytes: most } },
  );
}

function undecodable(path: string, encoding: Encoding, cause: unknown): GatewayError {
  const others = encodings.filter((name) => name !== encoding).join("' or '");
  return new GatewayError(
    "tool_failed",
    `'${path}' cannot be read as ${encoding}: it holds bytes that are not text in this encoding. Encodings: ${encodings.join(", ")}; try '${others}', or take it for a binary file.`,
    { param: "encoding", extra: { encoding, encodings: [...encodings] }, cause },
  );
}
