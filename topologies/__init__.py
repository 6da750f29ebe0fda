"""What a campus is: frozen, validated data, and nothing that runs. Imports no other package of the project.
Begin with `spec`; `presets` has the campuses of the paper, `files` the TOML form, `paths` the routes."""
