/**
 * Links with which files of a session come and go past the gateway (CHAT-19), since on some hosts requests and
 * answers have a size. Whose session it is is decided as for its files.
 */
import { largestUploadBytes } from "@toolyard/core/ports/blob-store";
import { toRfc3339 } from "@toolyard/core/time";
import {
  announceUpload,
  completeUpload as finishUpload,
  giveUpUpload,
  presignFile,
} from "@toolyard/core/workspace/uploads";
import * as z from "zod";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { downloadSchema, expiresInField, linkSchema, viewDownload } from "./links.ts";
import {
  arrangeFile,
  arrangeSession,
  fileSchema,
  liveSession,
  mediaTypePattern,
  openSession,
  requireWriter,
  viewFile,
} from "./sessions.ts";
import { idParams, timeSchema } from "./shared.ts";

const tags = ["sessions"];
const pathField = z
  .string()
  .min(1)
  .max(1_024)
  .meta({ description: "Relative to the workspace root; at most 1,024 bytes, 255 of one name, and 32 levels." });
const linkParams = z.strictObject({ id: z.string(), upload_id: z.string() });

const uploadSchema = z.strictObject({
  id: z.string().meta({ example: "upl_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("upload"),
  path: z.string().meta({ description: "Relative to the workspace root." }),
  bytes: z.int(),
  media_type: z.string(),
  replaces: z.boolean().meta({ description: "There is a file at the path, which the upload will replace." }),
  request: linkSchema,
  expires_at: timeSchema.meta({ description: "Until when the link can be followed." }),
});

async function arrangeUpload(owner: IsolationDriver): Promise<IsolatedRequest> {
  const { params } = await arrangeSession(owner);
  const id = String(params["id"]);
  const upload = await owner.send("post", `/v1/sessions/${id}/uploads`, { path: "large.bin", bytes: 10 });
  return { params: { id, upload_id: String(upload["id"]) }, body: {} };
}

export const createUpload = defineRoute({
  method: "post",
  path: "/v1/sessions/{id}/uploads",
  summary: "Ask for a link to upload a file",
  description:
    "For files that are too large for a request: send the bytes to the link as 'request' says, then complete the upload. It holds room in the workspace until it is completed, given up, or its link has run out. A session that does not exist is begun.",
  tags,
  scope: null,
  request: {
    params: idParams,
    body: z.strictObject({
      path: pathField,
      bytes: z.int().min(0).max(largestUploadBytes).meta({ description: "The exact size; the link takes no other." }),
      media_type: z
        .string()
        .regex(mediaTypePattern, "must be visible ASCII characters, 255 at most")
        .default("application/octet-stream")
        .meta({ description: "Kept with the file; to be sent as 'Content-Type'." }),
      expires_in_ms: expiresInField,
    }),
  },
  responses: { 201: { description: "The link", schema: uploadSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ ...(await arrangeSession(owner)), body: { path: "a.bin", bytes: 1 } }),
    createsMissing: true,
  },
  async handler(c, { core, context, params, body }) {
    requireWriter(context);
    const session = await openSession(core, context, params.id);
    const place = { tenant: context.tenant, session: session.id, path: body.path };
    const { upload, request } = await announceUpload(core, place, {
      bytes: body.bytes,
      mediaType: body.media_type,
      expiresInMs: body.expires_in_ms,
      limit: context.config.settings.workspace_bytes,
    });
    const { id, path, bytes, mediaType, replaces, expiresAt } = upload;
    const view: z.output<typeof uploadSchema> = {
      id,
      object: "upload",
      path,
      bytes,
      media_type: mediaType,
      replaces,
      request: { ...request, headers: { ...request.headers } },
      expires_at: toRfc3339(expiresAt),
    };
    return c.json(view, 201);
  },
});

export const completeUpload = defineRoute({
  method: "post",
  path: "/v1/sessions/{id}/uploads/{upload_id}/complete",
  summary: "Make what was uploaded a file of the session",
  description:
    "May be asked again. 409 'upload_incomplete' until all bytes are there; 409 'conflict' where the path was written or deleted since the upload was announced, unless 'replace' is true.",
  tags,
  scope: null,
  request: {
    params: linkParams,
    body: z.strictObject({ replace: z.boolean().default(false) }).default({ replace: false }),
  },
  responses: {
    200: { description: "The file that replaced another", schema: fileSchema },
    201: { description: "The new file", schema: fileSchema },
  },
  isolation: { kind: "object", arrange: arrangeUpload },
  async handler(c, { core, context, params, body }) {
    requireWriter(context);
    const session = await liveSession(core, context, params.id);
    const place = { tenant: context.tenant, session: session.id, id: params.upload_id };
    const { file, replaced } = await finishUpload(core, place, {
      replace: body.replace,
      limit: context.config.settings.workspace_bytes,
    });
    return c.json(viewFile(file), replaced ? 200 : 201);
  },
});

export const deleteUpload = defineRoute({
  method: "delete",
  path: "/v1/sessions/{id}/uploads/{upload_id}",
  summary: "Give an upload up",
  description: "The room that it holds is free again. What is at its path stays.",
  tags,
  scope: null,
  request: { params: linkParams },
  responses: { 204: { description: "It will become no file" } },
  isolation: { kind: "object", arrange: arrangeUpload },
  async handler(c, { core, context, params }) {
    const session = await liveSession(core, context, params.id);
    await giveUpUpload(core, { tenant: context.tenant, session: session.id, id: params.upload_id });
    return c.body(null, 204);
  },
});

export const createDownload = defineRoute({
  method: "post",
  path: "/v1/sessions/{id}/downloads",
  summary: "Ask for a link to download a file",
  description:
    "The link is to the file as it is now and needs no key: whoever has it can read that file until it runs out, unless the file is replaced or deleted before.",
  tags,
  scope: null,
  request: {
    params: idParams,
    body: z.strictObject({ path: pathField, expires_in_ms: expiresInField }),
  },
  responses: { 201: { description: "The link", schema: downloadSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => {
      const { params } = await arrangeFile(owner);
      return { params: { id: String(params["id"]) }, body: { path: params["path"] } };
    },
  },
  async handler(c, { core, context, params, body }) {
    const session = await liveSession(core, context, params.id);
    const place = { tenant: context.tenant, session: session.id, path: body.path };
    const expiresAt = core.clock.now() + body.expires_in_ms;
    const { file, request } = await presignFile(core, place, body.expires_in_ms);
    return c.json(viewDownload(request, { bytes: file.bytes, mediaType: file.mediaType, expiresAt }), 201);
  },
});
