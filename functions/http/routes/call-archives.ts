/** Archives of calls whose retention is over (CHAT-13): which there are, and their lines. */
import { archiveNotFound, dayOf, findArchive } from "@toolyard/core/calls/archive";
import { newId } from "@toolyard/core/ids";
import type { CallArchive } from "@toolyard/core/ports/archives";
import { toRfc3339 } from "@toolyard/core/time";
import * as z from "zod";
import { answerBytes, knownToClient, tooLargeHere } from "../answer-bytes.ts";
import { defineRoute, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { archivedCallSchema } from "./calls.ts";
import { defaultExpiresInMs } from "./links.ts";
import { idOf, idParams, timeSchema } from "./shared.ts";

const tags = ["calls"];

const archiveSchema = z.strictObject({
  id: z.string().meta({ example: "arc_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("call_archive"),
  day: z.iso.date().meta({ description: "UTC, when its calls were made. A day may have several archives." }),
  calls: z.int(),
  bytes: z.int(),
  url: z.string().meta({ description: "Where its lines are." }),
  written_at: timeSchema,
});

function viewArchive({ id, day, calls, bytes, writtenAt }: CallArchive): z.output<typeof archiveSchema> {
  return {
    id,
    object: "call_archive",
    day: dayOf(day),
    calls,
    bytes,
    url: `/v1/call-archives/${id}`,
    written_at: toRfc3339(writtenAt),
  };
}

/** Only time makes archives. */
async function arrangeArchive(owner: IsolationDriver): Promise<string> {
  const name = newId("request");
  await owner.send("put", `/v1/sessions/${name}/files/a.json`, {});
  await owner.send("post", "/v1/tools/invoke", { name: "list_files", arguments: {}, session_id: name });
  await owner.passDays(40);
  const list = await owner.send("get", "/v1/call-archives?limit=1&order=desc");
  return String(list["first_id"]);
}

export const listCallArchives = defineRoute({
  method: "get",
  path: "/v1/call-archives",
  summary: "List archives of calls",
  description:
    "Calls that are older than 'calls_retention_days' are no rows any more but lines of these, kept for 'calls_archive_days'. By day.",
  tags,
  scope: "calls",
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of archives", schema: listSchema(archiveSchema) } },
  isolation: { kind: "list", arrange: arrangeArchive },
  handler: async (c, { core, tenant, query }) =>
    c.json(toList(await core.repos.archives.list(tenant, toPageRequest(query)), viewArchive, idOf)),
});

export const getCallArchive = defineRoute({
  method: "get",
  path: "/v1/call-archives/{id}",
  summary: "The calls of an archive, as NDJSON",
  description:
    "One call a line, as GET /v1/calls/{id} showed it, oldest first; 'result.preview' is all that its row held, and there is no 'result.url' any more. Each call stands in one archive, once.",
  tags,
  scope: "calls",
  request: { params: idParams, headers: { range: "One range of bytes, for example `bytes=0-1023`." } },
  responses: {
    200: { description: "One JSON object a line", mediaType: "application/x-ndjson", schema: archivedCallSchema },
    206: { description: "The bytes of the range", mediaType: "application/x-ndjson" },
    304: knownToClient,
    307: tooLargeHere,
    416: { description: "Nothing of the archive lies in the range" },
  },
  isolation: { kind: "object", arrange: async (owner) => ({ params: { id: await arrangeArchive(owner) } }) },
  async handler(c, { app, core, tenant, params }) {
    const { archive, blob, key } = await findArchive(core, tenant, params.id);
    const fileName = `calls-${dayOf(archive.day)}-${archive.id}.ndjson`;
    return answerBytes(c, {
      bytes: blob.bytes,
      mediaType: blob.mediaType,
      etag: blob.etag,
      fileName,
      async open(range) {
        const opened = await core.blobs.get(key, range);
        if (opened === undefined || opened.info.etag !== blob.etag) throw archiveNotFound(params.id);
        return opened.body;
      },
      ...(app.blobLinks === undefined
        ? { link: () => core.blobs.presign(key, { method: "GET", expiresInMs: defaultExpiresInMs, fileName }) }
        : {}),
    });
  },
});
