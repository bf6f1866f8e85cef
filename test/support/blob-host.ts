/** Serves the links of blob stores that have no HTTP of their own, as the gateway's app does, without a socket. */
import { randomBytes } from "node:crypto";
import { hashApiKey } from "@toolyard/core/callers/api-key";
import type { BlobStore, Presign } from "@toolyard/core/ports/blob-store";
import { createBlobLinks } from "@toolyard/core/secrets/blob-links";
import { Sealer } from "@toolyard/core/secrets/sealer";
import { createLocalKeyVault } from "@toolyard/platform/local/local-key-vault";
import { createApp } from "../../functions/http/app.ts";
import { getBlob, putBlob } from "../../functions/http/routes/blobs.ts";
import { createFakeCore } from "./fake-core.ts";

export interface BlobHost {
  /** The store, whose links `send` can follow. */
  serve(make: (presign: Presign) => BlobStore): BlobStore;
  readonly send: (url: string, init: RequestInit) => Promise<Response>;
}

/** For tests of stores in which no link is made. */
export const noLinks: Presign = () => Promise.reject(new Error("no link was expected to be made"));

export function createBlobHost(): BlobHost {
  const apps = new Map<string, ReturnType<typeof createApp>>();
  const clock = { now: () => Date.now(), sleep: () => Promise.resolve() };
  const vault = createLocalKeyVault({ masterKey: randomBytes(32) });
  const sealer = new Sealer(vault, clock);
  const keys = new Map<string, Promise<string>>();
  const keyOf = (tenant: string): Promise<string> => {
    const key = keys.get(tenant) ?? vault.wrap(tenant, randomBytes(32));
    keys.set(tenant, key);
    return key;
  };
  return {
    serve(make) {
      const publicUrl = `http://blobs-${apps.size}.test`;
      const blobLinks = createBlobLinks({
        tenants: {
          get: async (id) => ({
            id,
            name: id,
            status: "active",
            configVersion: 1,
            settings: {},
            wrappedKey: await keyOf(id),
            createdAt: 0,
          }),
        },
        sealer,
        clock,
        publicUrl,
      });
      const blobs = make(blobLinks.presign);
      const core = createFakeCore({ core: { blobs } });
      const deps = { core, blobLinks, adminKeyHash: hashApiKey("nobody"), version: "0" };
      apps.set(publicUrl, createApp(deps, { getBlob, putBlob }));
      return blobs;
    },
    send: async (url, init) => {
      const app = apps.get(new URL(url).origin);
      if (app === undefined) throw new Error(`${url} leads nowhere`);
      return app.request(url, init);
    },
  };
}
