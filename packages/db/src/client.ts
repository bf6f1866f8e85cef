/**
 * Opens the database that a URL names: a file of this machine, or a libSQL server over HTTP. The two
 * drivers are loaded only when used: a function that talks to a server carries no native module.
 */
import { fileURLToPath } from "node:url";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { Database } from "./database.ts";

export interface DatabaseOptions {
  /** `file:/path.db`, `libsql://host`, `https://host` or `http://host`. */
  readonly url: string;
  /** For servers; alternatively `?authToken=` in the URL. */
  readonly authToken?: string;
  /** Milliseconds that a batch may take with all its waiting and retries. Default 5,000. */
  readonly budgetMs?: number;
}

/** @throws GatewayError `invalid_request` for a URL that names no supported database, `database_unavailable` */
export async function openDatabase({ url, authToken, budgetMs = 5_000 }: DatabaseOptions): Promise<Database> {
  const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(url)?.[1]?.toLowerCase();
  if (scheme === "file") {
    const path = pathOf(url);
    const { openFileDatabase } = await import("./file-database.ts");
    return openFileDatabase(path, { budgetMs });
  }
  if (scheme === "libsql" || scheme === "https" || scheme === "http") {
    const { openRemoteDatabase } = await import("./remote-database.ts");
    try {
      return openRemoteDatabase({ url, authToken, budgetMs });
    } catch (cause) {
      // The cause quotes the URL, and with it perhaps a token; it stays out of the message.
      throw unsupported("It is no address of a server.", cause);
    }
  }
  throw unsupported(
    url === "" ? "It is empty." : `There is no driver for ${scheme === undefined ? "that" : `'${scheme}:'`}.`,
  );
}

function pathOf(url: string): string {
  const rest = url.slice("file:".length);
  if (rest.includes(":memory:")) {
    // Each connection to an in-memory database sees one of its own, and all is lost on exit.
    throw unsupported("An in-memory database keeps nothing and cannot be shared.");
  }
  if (rest.includes("?") || rest.includes("#")) throw unsupported("A file takes no options in its URL.");
  if (rest === "" || rest.endsWith("/")) throw unsupported("It names no file.");
  if (!rest.startsWith("//")) return decodeURIComponent(rest);
  try {
    return fileURLToPath(url);
  } catch (cause) {
    throw unsupported("It is no file URL of this machine.", cause);
  }
}

function unsupported(reason: string, cause?: unknown): GatewayError {
  return new GatewayError(
    "invalid_request",
    `DATABASE_URL cannot be used. ${reason} Use 'file:/path.db', or 'libsql://host' for a server.`,
    { param: "DATABASE_URL", cause },
  );
}
