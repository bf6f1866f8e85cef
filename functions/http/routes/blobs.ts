/**
 * Where links to single blobs lead when the store has no HTTP of its own (CHAT-19). Whoever holds a link
 * needs no key; the token in it is all there is, and the log shows the pattern of the path only.
 */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { largestUploadBytes } from "@toolyard/core/ports/blob-store";
import { blobPath, type BlobLink } from "@toolyard/core/secrets/blob-links";
import * as z from "zod";
import { answerBytes, knownToClient, ofAnyType } from "../answer-bytes.ts";
import { headerOf, type AppContext, type AppDeps } from "../app-env.ts";
import { defineRoute } from "../define-route.ts";

const open = { tags: ["sessions"], scope: null, admission: "none" } as const;
const params = z.strictObject({ token: z.string() });

async function openLink(c: AppContext, app: AppDeps, token: string, method: "GET" | "PUT"): Promise<BlobLink> {
  if (app.blobLinks === undefined) {
    throw new GatewayError("link_invalid", "Blobs are not served here; the store has links of its own.");
  }
  const link = await app.blobLinks.open(token, method);
  c.get("exchange").tenant = link.tenant;
  return link;
}

export const getBlob = defineRoute({
  ...open,
  method: "get",
  path: `${blobPath}{token}`,
  summary: "Where a download link leads",
  description: "The link is all that is needed, and a secret while it lasts. Ranges are answered.",
  request: { params, headers: { range: "One range of bytes, for example `bytes=0-1023`." } },
  responses: {
    200: { description: "The bytes, in their own media type", mediaType: ofAnyType },
    206: { description: "The bytes of the range", mediaType: ofAnyType },
    304: knownToClient,
    416: { description: "Nothing of it lies in the range" },
  },
  async handler(c, { app, core, params: { token } }) {
    const link = await openLink(c, app, token, "GET");
    const info = await core.blobs.head(link.key);
    if (info === undefined) throw gone();
    return answerBytes(c, {
      bytes: info.bytes,
      mediaType: info.mediaType,
      etag: info.etag,
      fileName: link.fileName ?? "download",
      async open(range) {
        const blob = await core.blobs.get(link.key, range);
        if (blob === undefined || blob.info.etag !== info.etag) throw gone();
        return blob.body;
      },
    });
  },
});

export const putBlob = defineRoute({
  ...open,
  method: "put",
  path: `${blobPath}{token}`,
  summary: "Where an upload link leads",
  description:
    "Takes exactly the bytes and the type that the link was made for, once. Then say that they are there: POST /v1/sessions/{id}/uploads/{upload_id}/complete.",
  request: {
    params,
    stream: { mediaTypes: ofAnyType, description: "As many bytes as were announced, of the type that was." },
    maxBytes: largestUploadBytes,
  },
  responses: { 201: { description: "All bytes are stored" } },
  async handler(c, { app, core, params: { token }, stream }) {
    const link = await openLink(c, app, token, "PUT");
    if ((headerOf(c, "content-type") ?? "").trim() !== link.mediaType) {
      throw new GatewayError(
        "link_invalid",
        "This link is for another type of content; send the headers that came with it.",
        {
          param: "content-type",
        },
      );
    }
    const length = headerOf(c, "content-length");
    if (length !== undefined && Number(length) !== link.bytes) throw wrongSize(link.bytes);
    const stored = await core.blobs.put(link.key, exactly(stream, link.bytes), {
      mediaType: link.mediaType,
      ifAbsent: true,
    });
    if (!stored) throw new GatewayError("conflict", "This link was used before; ask for another one.");
    return c.body(null, 201);
  },
});

async function* exactly(body: AsyncIterable<Uint8Array>, bytes: number): AsyncGenerator<Uint8Array, void, void> {
  let seen = 0;
  for await (const part of body) {
    seen += part.byteLength;
    if (seen > bytes) throw wrongSize(bytes);
    yield part;
  }
  if (seen !== bytes) throw wrongSize(bytes);
}

function wrongSize(bytes: number): GatewayError {
  return new GatewayError("link_invalid", `This link is for exactly ${bytes} bytes; ask for one of the right size.`, {
    param: "content-length",
    extra: { bytes },
  });
}

function gone(): GatewayError {
  return new GatewayError("not_found", "What this link led to is gone.");
}
