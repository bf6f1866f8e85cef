/** Descriptors that were uploaded for a service: in its configuration, or as a set that it refers to (SVC-1). */
import { DescriptorSets } from "../grpc/descriptor-sets.ts";
import { configuredSet, type DescriptorSet } from "../grpc/uploaded.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import { invalidConfig } from "../services/invalid-config.ts";
import type { SvcConfig } from "./config.ts";

export class UploadedSets {
  readonly #sets: DescriptorSets;

  constructor(deps: { readonly blobs: BlobStore }) {
    this.#sets = new DescriptorSets(deps);
  }

  /**
   * Undefined: the server is to be asked.
   * @throws GatewayError `invalid_definition` for a set that cannot be read or is not there
   */
  async of({ grpc }: Pick<SvcConfig, "grpc">, tenant: string): Promise<DescriptorSet | undefined> {
    if (grpc?.descriptors !== undefined) return configuredSet(grpc.descriptors);
    const id = grpc?.descriptor_set;
    if (id === undefined) return undefined;
    const set = await this.#sets.open(tenant, id);
    if (set !== undefined) return set;
    throw invalidConfig(
      "grpc.descriptor_set",
      `is '${id}', which is not there; upload it with POST /v1/descriptor-sets`,
    );
  }
}
