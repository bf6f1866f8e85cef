/**
 * What object stores differ in although they all speak S3 (OSS-2): addresses, how a bucket is named in
 * one, which listing they know, how a write that must not overwrite is asked for. One client serves all;
 * whatever is not here is what they agree on: Signature version 4, single bodies with a length, SHA-256 and
 * Content-MD5, no trailing checksums, no access control headers.
 */
import type { Pair } from "./sigv4.ts";

export interface VendorProfile {
  readonly title: string;
  /** Address of the service in a region; undefined: it must be configured. */
  readonly endpointOf?: (region: string) => string;
  /** Region of signatures where the configuration names none. */
  readonly defaultRegion?: string;
  /** Why a region is none; undefined: it is one. */
  readonly regionProblem?: (region: string) => string | undefined;
  readonly bucketProblem?: (bucket: string) => string | undefined;
  /** Where the bucket stands unless the configuration says otherwise: before the host, or in the path. */
  readonly addressing: "virtual" | "path";
  /** Buckets in paths are refused. */
  readonly refusesPath: boolean;
  /** Bytes of a whole key. */
  readonly keyBytes: number;
  /** Version 1 goes on after a key, version 2 with a token. */
  readonly listing: 1 | 2;
  /** Headers that go with a range, for it to be understood as elsewhere. */
  readonly rangeHeaders?: readonly Pair[];
  /** Header of a write that must not overwrite; absent: the store knows none. */
  readonly ifAbsent?: Pair;
  /** The header is known to decide; else it is also looked whether something is there. */
  readonly decidesIfAbsent: boolean;
}

const withoutPrefix =
  (prefix: string) =>
  (region: string): string | undefined =>
    region.startsWith(prefix)
      ? `must not begin with '${prefix}', which belongs to host names; write '${region.slice(prefix.length)}'`
      : undefined;

export const vendors = {
  aws_s3: {
    title: "AWS S3",
    endpointOf: (region) => `https://s3.${region}.amazonaws.com${region.startsWith("cn-") ? ".cn" : ""}`,
    addressing: "virtual",
    refusesPath: false,
    keyBytes: 1_024,
    listing: 2,
    ifAbsent: ["if-none-match", "*"],
    decidesIfAbsent: true,
  },
  minio: {
    title: "MinIO and other stores that speak S3",
    defaultRegion: "us-east-1",
    addressing: "path",
    refusesPath: false,
    keyBytes: 1_024,
    listing: 2,
    ifAbsent: ["if-none-match", "*"],
    // Whoever else speaks S3 may take the header for nothing.
    decidesIfAbsent: false,
  },
  aliyun_oss: {
    title: "Alibaba Cloud OSS",
    endpointOf: (region) => `https://s3.oss-${region}.aliyuncs.com`,
    regionProblem: withoutPrefix("oss-"),
    addressing: "virtual",
    refusesPath: true,
    keyBytes: 1_023,
    listing: 2,
    // Else an end beyond the object's is answered with the whole object.
    rangeHeaders: [["x-oss-range-behavior", "standard"]],
    ifAbsent: ["x-oss-forbid-overwrite", "true"],
    decidesIfAbsent: false,
  },
  tencent_cos: {
    title: "Tencent Cloud COS",
    endpointOf: (region) => `https://cos.${region}.myqcloud.com`,
    regionProblem: withoutPrefix("cos."),
    bucketProblem: (bucket) =>
      /-\d{5,}$/.test(bucket) ? undefined : "must end in the APPID of the account, as in 'photos-1250000000'",
    addressing: "virtual",
    refusesPath: true,
    keyBytes: 850,
    listing: 1,
    ifAbsent: ["x-cos-forbid-overwrite", "true"],
    decidesIfAbsent: false,
  },
  huawei_obs: {
    title: "Huawei Cloud OBS",
    endpointOf: (region) => `https://obs.${region}.myhuaweicloud.com`,
    regionProblem: withoutPrefix("obs."),
    addressing: "virtual",
    refusesPath: false,
    keyBytes: 1_024,
    listing: 1,
    decidesIfAbsent: false,
  },
} as const satisfies Readonly<Record<string, VendorProfile>>;

export type Vendor = keyof typeof vendors;

export function profileOf(vendor: Vendor): VendorProfile {
  return vendors[vendor];
}
