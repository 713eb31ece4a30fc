import { readdirSync } from "node:fs"
import { mkdir, readdir, rename, rm, writeFile } from "node:fs/promises"
import { join } from "node:path"
import process from "node:process"
import { cached, cachedEntry } from "./cache.ts"
import { onPath, run } from "./programs.ts"

/** The version of Kafka that is fetched. `KAFKA_HOME` may bring another one. */
const version = "4.4.0"
const entry = `kafka-${version}`
/** Kafka 4 runs on Java 17 and later. */
const oldestJava = 17

/** Why Kafka cannot be started here; `undefined` when it can. */
export async function kafkaNeed(): Promise<string | undefined> {
  if (onPath("java") === undefined) return "no java on the PATH"
  const java = await javaVersion()
  if (java < oldestJava) return `java on the PATH is ${java}, and Kafka ${version} needs ${oldestJava}`
  if (givenJars() !== undefined || cachedEntry(entry) !== undefined) return undefined
  if (onPath("mvn") === undefined) return "no mvn on the PATH to fetch Kafka with, and no KAFKA_HOME"
  return undefined
}

/** Kafka's jars: those of `KAFKA_HOME`, else of Maven Central, fetched once into the cache. */
export async function kafkaJars(): Promise<{ readonly directory: string; readonly version: string }> {
  const directory = givenJars() ?? (await cached(entry, fetchJars))
  return { directory, version: versionIn(directory) }
}

function givenJars(): string | undefined {
  const home = process.env.KAFKA_HOME
  return home === undefined || home === "" ? undefined : join(home, "libs")
}

function versionIn(directory: string): string {
  for (const file of readdirSync(directory)) {
    const found = /^kafka-clients-(\d.*)\.jar$/.exec(file)?.[1]
    if (found !== undefined) return found
  }
  throw new Error(`${directory} holds no kafka-clients jar`)
}

async function javaVersion(): Promise<number> {
  const { stdout, stderr } = await run("java", ["-version"])
  return Number(/version "(?:1\.)?(\d+)/.exec(`${stdout}${stderr}`)?.[1] ?? 0)
}

async function fetchJars(directory: string): Promise<void> {
  console.error(`fetching Kafka ${version} from Maven Central (about 55 MB, once)`)
  const jars = join(directory, "jars")
  await mkdir(jars)
  await writeFile(join(directory, "pom.xml"), pom)
  const goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
  await run("mvn", ["-q", "-B", goal, `-DoutputDirectory=${jars}`, "-DincludeScope=runtime"], { cwd: directory })
  for (const jar of await readdir(jars)) await rename(join(jars, jar), join(directory, jar))
  await rm(jars, { recursive: true })
}

/** The last is what brings Kafka's words to its log: distributions hold it, the jars do not ask for it. */
const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>millrace</groupId>
  <artifactId>kafka-server</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>${version}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>${version}</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.5</version></dependency>
  </dependencies>
</project>
`
