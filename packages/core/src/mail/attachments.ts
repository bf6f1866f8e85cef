/** Attachments of a mail: given with the call, a file of the session, or the result of an earlier call (MAIL-3). */
import { readBase64 } from "../base64.ts";
import { openHandle } from "../calls/open-handle.ts";
import type { CallContext } from "../context.ts";
import type { AdapterDeps } from "../deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { MailAttachment } from "../ports/mail-transport.ts";
import { withDelivery } from "../errors/delivery.ts";
import { createWorkspace } from "../workspace/workspace.ts";
import { isHeaderText } from "./address.ts";
import { invalid, type AttachmentArgument } from "./request.ts";
import { readWithin } from "../read-body.ts";

type AttachmentDeps = Pick<AdapterDeps, "blobs" | "clock" | "log" | "repos">;

/** @throws GatewayError `invalid_arguments`, `file_not_found`, `not_found`, `invalid_request`; all `not_sent` */
export async function readAttachments(
  deps: AttachmentDeps,
  context: CallContext,
  { given, most }: { readonly given: readonly AttachmentArgument[]; readonly most: number },
): Promise<readonly MailAttachment[]> {
  const attachments: MailAttachment[] = [];
  let left = most;
  for (const [index, each] of given.entries()) {
    const field = `attachments.${index}`;
    checkLabels(field, each);
    const { content, mediaType } = await readContent(deps, context, { each, field, most: left, limit: most }).catch(
      (error: unknown) => {
        throw error instanceof GatewayError ? withDelivery(error, "not_sent") : error;
      },
    );
    left -= content.byteLength;
    attachments.push({
      name: each.name,
      content,
      mediaType: each.contentType ?? (mediaType !== undefined && isMultipart(mediaType) ? undefined : mediaType),
      contentId: each.contentId,
    });
  }
  return attachments;
}

/** Its header would promise parts, which one file has not. */
function isMultipart(mediaType: string): boolean {
  return /^\s*multipart\//i.test(mediaType);
}

/** They become headers. */
function checkLabels(field: string, { name, contentType, contentId }: AttachmentArgument): void {
  if (!isHeaderText(name) || /[/\\]/.test(name))
    throw invalid(`${field}.name`, `'${field}.name' must be a file name, without slashes and control characters.`);
  if (contentType !== undefined && isMultipart(contentType))
    throw invalid(`${field}.contentType`, `'${field}.contentType' must be the type of one file, not multipart.`);
  if (contentType !== undefined && !/^[\w!#$&^.+-]{1,63}\/[\w!#$&^.+-]{1,63}$/.test(contentType))
    throw invalid(`${field}.contentType`, `'${field}.contentType' must be a media type such as application/pdf.`);
  if (contentId !== undefined && !/^[\w.@+-]+$/.test(contentId))
    throw invalid(`${field}.contentId`, `'${field}.contentId' may hold letters, digits, '.', '_', '@', '+' and '-'.`);
}

interface Wanted {
  readonly each: AttachmentArgument;
  readonly field: string;
  /** Bytes that are left of `limit`. */
  readonly most: number;
  readonly limit: number;
}

interface Content {
  readonly content: Uint8Array;
  readonly mediaType: string | undefined;
}

async function readContent(deps: AttachmentDeps, context: CallContext, wanted: Wanted): Promise<Content> {
  const { each, field } = wanted;
  const sources = [each.content, each.file, each.result].filter((source) => source !== undefined);
  if (sources.length !== 1) throw invalid(field, `'${field}' needs one of 'content', 'file' and 'result'.`);
  if (each.content !== undefined)
    return { content: limited(decode(each.content, wanted), wanted), mediaType: undefined };
  if (each.file !== undefined) {
    const { file, body } = await createWorkspace(deps).read({
      tenant: context.tenant,
      session: sessionOf(context, field),
      path: each.file,
    });
    return { content: await collect(body, wanted), mediaType: file.mediaType };
  }
  const result = await openHandle(deps, context, each.result ?? "");
  return { content: await collect(result.body, wanted), mediaType: result.mediaType };
}

function decode(text: string, { each, field }: Wanted): Uint8Array {
  if (each.encoding === "utf-8") return Buffer.from(text, "utf8");
  const bytes = readBase64(text);
  if (bytes !== undefined) return bytes;
  throw invalid(
    `${field}.content`,
    `'${field}.content' is not base64, or lacks a part of it; for text as it is, say "encoding": "utf-8".`,
  );
}

function sessionOf({ sessionId }: CallContext, field: string): string {
  if (sessionId !== undefined) return sessionId;
  throw invalid(`${field}.file`, `'${field}.file' is a file of a session; send 'session_id' with the request.`);
}

function collect(body: AsyncIterable<Uint8Array>, wanted: Wanted): Promise<Uint8Array> {
  return readWithin(body, wanted.most, () => tooLarge(wanted));
}

function limited(content: Uint8Array, wanted: Wanted): Uint8Array {
  if (content.byteLength > wanted.most) throw tooLarge(wanted);
  return content;
}

function tooLarge({ field, limit }: Wanted): GatewayError {
  return invalid(field, `With '${field}' the attachments have more than ${limit} bytes ('max_attachment_bytes').`);
}
