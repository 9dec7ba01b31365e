# Run once, on an empty data folder: a role and a database for each service that keeps something.
for service in registry metering; do
  psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" \
    --set name="$service" --set password="$(cat "/run/inferplane/postgres/secrets/$service-password")" <<'SQL'
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL
done
