/** Where a bucket is reached: its own host, a path below the service's, or a domain that stands for it. */
import { encodePath, encodeStrictly } from "./sigv4.ts";
import { profileOf, type Vendor } from "./vendors.ts";

export type Addressing = "virtual" | "path" | "custom_domain";

export interface BucketPlace {
  readonly vendor: Vendor;
  readonly bucket: string;
  /** Of signatures, and of the address where none is given. */
  readonly region: string;
  /** Absent: the vendor's own of the region. */
  readonly endpoint?: string | undefined;
  /** Absent: as the vendor has it. */
  readonly addressing?: Addressing | undefined;
}

export interface BucketAddress {
  readonly origin: string;
  /** With the port where it is not the scheme's own. */
  readonly host: string;
  /** Before `/` and the key: encoded, without a slash at its end. */
  readonly basePath: string;
}

export function addressOf(place: BucketPlace): BucketAddress {
  const { vendor, bucket, region } = place;
  const profile = profileOf(vendor);
  const url = new URL(place.endpoint ?? profile.endpointOf?.(region) ?? "");
  const path = url.pathname.replace(/\/+$/, "");
  const addressing = addressingOf(place, url);
  if (addressing === "virtual") {
    const host = `${bucket}.${url.host}`;
    return { origin: `${url.protocol}//${host}`, host, basePath: path };
  }
  const basePath = addressing === "path" ? `${path}/${encodeStrictly(bucket)}` : path;
  return { origin: url.origin, host: url.host, basePath };
}

/**
 * As it is configured, or as the vendor has it; but certificates for `*.host` cover one name before it: a bucket with
 * dots goes into the path where it may.
 */
export function addressingOf(
  { vendor, bucket, addressing }: Pick<BucketPlace, "vendor" | "bucket" | "addressing">,
  { protocol }: URL,
): Addressing {
  if (addressing !== undefined) return addressing;
  const { addressing: usual, refusesPath } = profileOf(vendor);
  return bucket.includes(".") && protocol === "https:" && !refusesPath ? "path" : usual;
}

/** Path of a key, or of the bucket itself where the key is empty. */
export function pathOf({ basePath }: BucketAddress, key: string): string {
  return `${basePath}/${encodePath(key)}`;
}
